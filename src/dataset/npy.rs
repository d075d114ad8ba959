//! The header of an `.npy` file: a magic, a version, a length, and a Python dictionary of three entries
//! (NumPy's `numpy.lib.format` documents them).

use super::dense::{Element, Type};
use super::source::Source;
use crate::error::Result;
use std::io::Read;

const MAGIC: [u8; 6] = *b"\x93NUMPY";
/// Longer dictionaries than this describe structured arrays at most, never vectors.
const MAX_HEADER: usize = 1 << 20;
/// No array has more dimensions (NumPy's own limit is 64).
const MAX_DIMENSIONS: usize = 64;

#[derive(Debug)]
pub(super) struct Header {
    pub(super) element: Element,
    pub(super) shape: Vec<u64>,
}

/// Reads and checks the header; also returns its length in bytes.
pub(super) fn read<R: Read>(source: &mut Source<R>) -> Result<(Header, u64)> {
    const CUT: &str = "truncated: the .npy header is cut short";
    let Some(magic) = source.array()? else {
        return Err(source.error(CUT));
    };
    if magic != MAGIC {
        return Err(source.error("not an .npy file: the magic bytes are missing"));
    }
    let Some([major, minor]) = source.array()? else {
        return Err(source.error(CUT));
    };
    let (length, prefix) = match major {
        1 => (source.array()?.map(|b| u32::from(u16::from_le_bytes(b))), 10),
        2 | 3 => (source.array()?.map(u32::from_le_bytes), 12),
        _ => return Err(source.error(format!(".npy version {major}.{minor} is unknown; versions 1 to 3 are read"))),
    };
    let Some(length) = length.map(|l| l as usize) else {
        return Err(source.error(CUT));
    };
    if length > MAX_HEADER {
        return Err(source.error(format!("an .npy header of {length} bytes describes no plain array of numbers")));
    }
    let mut text = vec![0; length];
    if source.fill(&mut text)? < length {
        return Err(source.error(CUT));
    }
    let header = std::str::from_utf8(&text)
        .map_err(|_| "it is not text".to_owned())
        .and_then(parse)
        .map_err(|reason| source.error(format!("the .npy header is refused: {reason}")))?;
    Ok((header, (prefix + length) as u64))
}

/// `{'descr': '<f2', 'fortran_order': False, 'shape': (100, 384), }`, its entries in any order.
fn parse(text: &str) -> Result<Header, String> {
    let mut parser = Parser { rest: text };
    let (mut element, mut fortran_order, mut shape) = (None, None, None);
    parser.expect('{')?;
    while !parser.eat('}') {
        let key = parser.string()?;
        parser.expect(':')?;
        let repeated = match key {
            "descr" if parser.eat('[') => return Err("structured arrays are not read".into()),
            "descr" => element.replace(parse_descr(parser.string()?)?).is_some(),
            "fortran_order" => fortran_order.replace(parser.boolean()?).is_some(),
            "shape" => shape.replace(parser.tuple()?).is_some(),
            _ => return Err(format!("unknown entry \"{key}\"")),
        };
        if repeated {
            return Err(format!("entry \"{key}\" is there twice"));
        }
        if !parser.eat(',') {
            parser.expect('}')?;
            break;
        }
    }
    if !parser.rest.trim_end_matches(['\0', '\n', ' ']).is_empty() {
        return Err("text follows the dictionary".into());
    }
    match fortran_order {
        Some(false) => {}
        Some(true) => {
            return Err("the array is in Fortran order; save numpy.ascontiguousarray(array) instead".into());
        }
        None => return Err("\"fortran_order\" is missing".into()),
    }
    Ok(Header { element: element.ok_or("\"descr\" is missing")?, shape: shape.ok_or("\"shape\" is missing")? })
}

fn parse_descr(descr: &str) -> Result<Element, String> {
    let unknown = || format!("dtype \"{descr}\" is not read; f2, f4, f8 (vectors) and i4, i8, u4, u8 (keys) are");
    let mut chars = descr.chars();
    let big_endian = match chars.next() {
        Some('<') => false,
        Some('>') => true,
        _ => return Err(unknown()),
    };
    let kind = match chars.as_str() {
        "f2" => Type::F16,
        "f4" => Type::F32,
        "f8" => Type::F64,
        "i4" => Type::I32,
        "i8" => Type::I64,
        "u4" => Type::U32,
        "u8" => Type::U64,
        _ => return Err(unknown()),
    };
    Ok(Element { kind, big_endian })
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn eat(&mut self, token: char) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, token: char) -> Result<(), String> {
        if self.eat(token) { Ok(()) } else { Err(format!("'{token}' expected, {} found", self.found())) }
    }

    fn found(&self) -> String {
        match self.rest.chars().next() {
            Some(c) => format!("'{c}'"),
            None => "the end".into(),
        }
    }

    /// A literal in either kind of quotes, without escapes: no entry read here has any.
    fn string(&mut self) -> Result<&'a str, String> {
        let quote = if self.eat('\'') {
            '\''
        } else if self.eat('"') {
            '"'
        } else {
            return Err(format!("a string expected, {} found", self.found()));
        };
        let (string, rest) = self.rest.split_once(quote).ok_or("a string has no end")?;
        self.rest = rest;
        Ok(string)
    }

    fn boolean(&mut self) -> Result<bool, String> {
        self.rest = self.rest.trim_start();
        for (word, value) in [("True", true), ("False", false)] {
            if let Some(rest) = self.rest.strip_prefix(word) {
                self.rest = rest;
                return Ok(value);
            }
        }
        Err(format!("True or False expected, {} found", self.found()))
    }

    fn tuple(&mut self) -> Result<Vec<u64>, String> {
        let mut values = Vec::new();
        self.expect('(')?;
        while !self.eat(')') {
            let digits = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
            // Only where `digits` is no boundary, which it always is, would there be no rest.
            let (number, rest) = self.rest.split_at_checked(digits).unwrap_or((self.rest, ""));
            match number.parse() {
                Ok(length) => values.push(length),
                Err(_) if number.is_empty() => return Err(format!("a length expected, {} found", self.found())),
                Err(_) => return Err(format!("{number} is not a length")),
            }
            if values.len() > MAX_DIMENSIONS {
                return Err(format!("more than {MAX_DIMENSIONS} dimensions"));
            }
            // Python 2 wrote long integers with a suffix.
            self.rest = rest.strip_prefix('L').unwrap_or(rest);
            if !self.eat(',') {
                self.expect(')')?;
                break;
            }
        }
        Ok(values)
    }
}
