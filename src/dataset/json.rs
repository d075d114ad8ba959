//! JSON lines: a vector a line, under a field of an object or as the bare array.

use super::dense::narrow;
use super::source::Source;
use crate::error::{Error, Result};
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::io::Read;

/// Longer lines are refused: what has no line ends is not JSON lines.
const MAX_LINE: u64 = 64 << 20;

#[derive(Debug)]
pub(super) struct JsonLines<R> {
    source: Source<R>,
    field: String,
    dimension: usize,
    /// The first vector, read to learn the dimension and not handed out yet.
    first: Option<Vec<f32>>,
    first_line: u64,
    /// The line read last, counting from 1.
    line: u64,
    text: Vec<u8>,
}

impl<R: Read> JsonLines<R> {
    pub(super) fn new(source: Source<R>, field: &str) -> Result<Self> {
        let mut lines = JsonLines {
            source,
            field: field.to_owned(),
            dimension: 0,
            first: None,
            first_line: 0,
            line: 0,
            text: Vec::new(),
        };
        let mut first = Vec::new();
        if !lines.next_row(&mut first)? {
            return Err(lines.source.error("empty: there is no line to tell the dimension"));
        }
        if first.is_empty() {
            return Err(lines.source.error_in_line(lines.line, "the vector has no components"));
        }
        lines.dimension = first.len();
        lines.first_line = lines.line;
        lines.first = Some(first);
        Ok(lines)
    }

    pub(super) fn dimension(&self) -> usize {
        self.dimension
    }

    pub(super) fn next_batch(&mut self, out: &mut Vec<f32>, max_rows: usize) -> Result<usize> {
        let mut done = 0;
        if let Some(first) = self.first.take() {
            *out = first;
            done = 1;
        }
        while done < max_rows && self.next_row(out)? {
            let got = out.len() - done * self.dimension;
            if got != self.dimension {
                let reason = format!("ragged: {got} components here, {} on line {}", self.dimension, self.first_line);
                return Err(self.source.error_in_line(self.line, reason));
            }
            done += 1;
        }
        Ok(done)
    }

    /// Appends the next vector to `out`; `false` at the end of the file.
    fn next_row(&mut self, out: &mut Vec<f32>) -> Result<bool> {
        loop {
            if !self.source.line(&mut self.text, MAX_LINE)? {
                return Ok(false);
            }
            self.line += 1;
            if self.text.len() as u64 > MAX_LINE {
                return Err(self.source.error_in_line(self.line, "is longer than 64 MiB"));
            }
            if !self.text.trim_ascii().is_empty() {
                break;
            }
        }
        let mut json = serde_json::Deserializer::from_slice(&self.text);
        Line { field: &self.field, out }
            .deserialize(&mut json)
            .and_then(|()| json.end())
            .map_err(|e| self.refuse(&e))?;
        Ok(true)
    }

    fn refuse(&self, error: &serde_json::Error) -> Error {
        let text = error.to_string();
        // serde_json counts lines within what it was given, which is a single one.
        let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
        let reason = match error.classify() {
            serde_json::error::Category::Data => what.to_owned(),
            _ => format!("not JSON: {what} (column {})", error.column()),
        };
        self.source.error_in_line(self.line, reason)
    }
}

/// Finds the vector of one line and appends it to `out`; everything else is skipped unparsed.
struct Line<'a> {
    field: &'a str,
    out: &'a mut Vec<f32>,
}

impl<'de> DeserializeSeed<'de> for Line<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Line<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with the field {:?}, or an array of numbers", self.field)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut found = false;
        while let Some(key) = map.next_key::<String>()? {
            if key != self.field {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            if found {
                return Err(de::Error::custom(format!("the field {key:?} is there twice")));
            }
            found = true;
            map.next_value_seed(Components(self.out))?;
        }
        if found { Ok(()) } else { Err(de::Error::custom(format!("there is no field {:?}", self.field))) }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<(), A::Error> {
        Components(self.out).visit_seq(seq)
    }
}

struct Components<'a>(&'a mut Vec<f32>);

impl<'de> DeserializeSeed<'de> for Components<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Components<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of numbers")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let mut component = 0;
        while let Some(value) = seq.next_element::<f64>()? {
            let value = narrow(value).map_err(|reason| de::Error::custom(format!("component {component} {reason}")))?;
            self.0.push(value);
            component += 1;
        }
        Ok(())
    }
}
