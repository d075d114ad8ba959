def text(rows): return f"{len(rows)} rows"
