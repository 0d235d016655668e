//! Arrays of numbers in the NPZ files of `NumPy`: a ZIP archive of NPY files, stored or deflated.

use std::io::Read;

use flate2::read::DeflateDecoder;

/// An array by name, its values in the order of rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Array {
    /// Its name in the archive, without `.npy`.
    pub name: String,
    /// Its lengths.
    pub shape: Vec<usize>,
    /// Its values.
    pub values: Vec<f64>,
}

/// More than any grid of measurements; it keeps a crooked file from filling the memory.
const MOST_BYTES: u64 = 1 << 28;

/// Whether the bytes begin like a ZIP archive.
pub(super) fn is_archive(bytes: &[u8]) -> bool {
    bytes.starts_with(b"PK\x03\x04") || bytes.starts_with(b"PK\x05\x06")
}

/// The arrays of an NPZ file.
///
/// # Errors
/// What cannot be read, in words.
pub(super) fn read(bytes: &[u8]) -> Result<Vec<Array>, String> {
    let directory = find_directory(bytes).ok_or("is not a whole ZIP archive")?;
    directory.into_iter().map(|entry| read_entry(bytes, &entry)).collect()
}

/// One file of an archive, from its central directory.
struct ArchiveEntry {
    name: String,
    method: u16,
    compressed: usize,
    header: usize,
}

fn number(bytes: &[u8], at: usize, length: usize) -> Option<usize> {
    let field = bytes.get(at..at.checked_add(length)?)?;
    Some(field.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte)))
}

/// The entries of the central directory, which the record at the end of the archive points to.
fn find_directory(bytes: &[u8]) -> Option<Vec<ArchiveEntry>> {
    const END_LENGTH: usize = 22;
    let last = bytes.len().checked_sub(END_LENGTH)?;
    let earliest = last.saturating_sub(usize::from(u16::MAX));
    let end = (earliest..=last).rev().find(|at| bytes[*at..].starts_with(b"PK\x05\x06"))?;
    let entries = number(bytes, end + 10, 2)?;
    let mut at = number(bytes, end + 16, 4)?;
    let mut directory = Vec::new();
    for _ in 0..entries {
        if !bytes.get(at..)?.starts_with(b"PK\x01\x02") {
            return None;
        }
        let [name, extra, comment] = [28, 30, 32].map(|field| number(bytes, at + field, 2));
        let (name, extra, comment) = (name?, extra?, comment?);
        let mut entry = ArchiveEntry {
            name: String::from_utf8_lossy(bytes.get(at + 46..at + 46 + name)?).into_owned(),
            method: number(bytes, at + 10, 2)? as u16,
            compressed: number(bytes, at + 20, 4)?,
            header: number(bytes, at + 42, 4)?,
        };
        wide_sizes(
            bytes.get(at + 46 + name..at + 46 + name + extra)?,
            &mut entry,
            number(bytes, at + 24, 4)?,
        );
        directory.push(entry);
        at += 46 + name + extra + comment;
    }
    Some(directory)
}

/// Sizes that did not fit their fields stand in an extra field of kind 1, in this order and only as far as needed.
fn wide_sizes(extra: &[u8], entry: &mut ArchiveEntry, uncompressed: usize) {
    const FULL: usize = u32::MAX as usize;
    let (Some(1), Some(_)) = (number(extra, 0, 2), number(extra, 2, 2)) else { return };
    let mut at = 4 + if uncompressed == FULL { 8 } else { 0 };
    for field in [&mut entry.compressed, &mut entry.header] {
        if *field == FULL
            && let Some(wide) = number(extra, at, 8)
        {
            *field = wide;
            at += 8;
        }
    }
}

fn read_entry(bytes: &[u8], entry: &ArchiveEntry) -> Result<Array, String> {
    let name = entry.name.strip_suffix(".npy").unwrap_or(&entry.name);
    let cut_short = || format!("`{name}` is cut short");
    // The header before the content has its own lengths of name and extra fields.
    let lengths = [26, 28].map(|field| number(bytes, entry.header + field, 2));
    let [Some(own_name), Some(own_extra)] = lengths else { return Err(cut_short()) };
    let start = entry.header + 30 + own_name + own_extra;
    let end = start.checked_add(entry.compressed).ok_or_else(cut_short)?;
    let packed = bytes.get(start..end).ok_or_else(cut_short)?;
    let content = match entry.method {
        0 => packed.to_vec(),
        8 => {
            let mut content = Vec::new();
            DeflateDecoder::new(packed)
                .take(MOST_BYTES)
                .read_to_end(&mut content)
                .map_err(|error| format!("`{name}` cannot be inflated: {error}"))?;
            content
        }
        method => {
            return Err(format!("`{name}` is compressed in a way (method {method}) that NumPy does not use"));
        }
    };
    read_array(&content)
        .map(|(shape, values)| Array { name: name.to_owned(), shape, values })
        .map_err(|reason| format!("`{name}` {reason}"))
}

/// An NPY file: a magic, a header that is a Python dictionary, and the values.
fn read_array(content: &[u8]) -> Result<(Vec<usize>, Vec<f64>), String> {
    if !content.starts_with(b"\x93NUMPY") {
        return Err("is no NumPy array".into());
    }
    let cut_short = || String::from("is cut short");
    let width = if content.get(6) == Some(&1) { 2 } else { 4 };
    let length = number(content, 8, width).ok_or_else(cut_short)?;
    let header = content.get(8 + width..8 + width + length).ok_or_else(cut_short)?;
    let header = String::from_utf8_lossy(header);
    let values = &content[8 + width + length..];
    let field = |key: &str| {
        let rest = header.split_once(&format!("'{key}':")).map(|(_, rest)| rest.trim_start());
        rest.ok_or_else(|| format!("has no `{key}` in its header"))
    };
    let kind = field("descr")?.split('\'').nth(1).unwrap_or_default().to_owned();
    let by_columns = field("fortran_order")?.starts_with("True");
    let shape = field("shape")?;
    let shape = shape.strip_prefix('(').and_then(|shape| shape.split_once(')')).map(|(shape, _)| shape);
    let shape: Option<Vec<usize>> = shape.map(|shape| {
        shape
            .split(',')
            .map(str::trim)
            .filter(|length| !length.is_empty())
            .filter_map(|length| length.parse().ok())
            .collect()
    });
    let shape = shape.ok_or("has no shape")?;
    let count =
        shape.iter().try_fold(1_usize, |count, length| count.checked_mul(*length)).ok_or_else(cut_short)?;
    let values = decode(&kind, values)?;
    if values.len() != count {
        return Err(format!("has {} values for the shape {shape:?}", values.len()));
    }
    match (by_columns, shape.as_slice()) {
        (true, [rows, columns]) => {
            let transposed = (0..count).map(|at| values[at % columns * rows + at / columns]).collect();
            Ok((shape, transposed))
        }
        _ => Ok((shape, values)),
    }
}

fn decode(kind: &str, bytes: &[u8]) -> Result<Vec<f64>, String> {
    fn all<const W: usize>(bytes: &[u8], value: impl Fn([u8; W]) -> f64) -> Vec<f64> {
        bytes.as_chunks::<W>().0.iter().map(|chunk| value(*chunk)).collect()
    }
    Ok(match kind {
        "<f8" => all(bytes, f64::from_le_bytes),
        "<f4" => all(bytes, |bytes| f64::from(f32::from_le_bytes(bytes))),
        "<i8" => all(bytes, |bytes| i64::from_le_bytes(bytes) as f64),
        "<u8" => all(bytes, |bytes| u64::from_le_bytes(bytes) as f64),
        "<i4" => all(bytes, |bytes| f64::from(i32::from_le_bytes(bytes))),
        "<u4" => all(bytes, |bytes| f64::from(u32::from_le_bytes(bytes))),
        other => return Err(format!("holds values of kind `{other}`; known: <f8, <f4, <i8, <u8, <i4, <u4")),
    })
}
