//! Files of measurements, from their bytes to prices.

use std::fmt::Write as _;
use std::io::Write;

use super::*;

const CSV: &str = "batch,new_tokens,prefix_tokens,context_tokens,latency_ms\n";

/// Rows of both phases that follow straight lines.
fn csv(batches: &[u32]) -> String {
    let mut text = CSV.to_owned();
    for batch in batches {
        for new in [64, 512, 4096] {
            for prefix in [0, 2048] {
                let ms = 5.0 + 0.02 * f64::from(batch * new) + 1e-3 * f64::from(prefix);
                writeln!(text, "{batch},{new},{prefix},,{ms}").unwrap();
            }
        }
    }
    for requests in [1, 8, 64, 512] {
        for context in [512, 4096, 32_768] {
            let ms = 4.0 + 0.05 * f64::from(requests) + 1e-6 * f64::from(requests * context);
            writeln!(text, "{requests},,,{context},{ms}").unwrap();
        }
    }
    text
}

fn read(text: &str) -> Result<MeasuredGrid, String> {
    MeasuredGrid::read(text.as_bytes()).map_err(|problems| {
        problems.into_iter().map(|problem| problem.message).collect::<Vec<_>>().join("; ")
    })
}

fn chunk(new_tokens: u32, prefix_tokens: u32) -> Chunk {
    Chunk { new_tokens, prefix_tokens }
}

#[test]
fn rows_become_prices() {
    let grid = read(&csv(&[1, 2, 8])).unwrap();
    let timing = grid.timing(0.25);
    let close = |ms: f64, expected: f64| assert!((ms / expected - 1.0).abs() < 1e-4, "{ms} {expected}");
    close(timing.prefill_ms(&[chunk(256, 0); 2]) - 0.25, 5.0 + 0.02 * 512.0);
    close(timing.prefill_ms(&[chunk(1000, 2048)]) - 0.25, 5.0 + 0.02 * 1000.0 + 2.048);
    let batch = DecodeBatch { requests: 20, context_tokens: 20 * 5000 };
    close(timing.decode_ms(batch) - 0.25, 4.0 + 0.05 * 20.0 + 1e-6 * 20.0 * 5000.0);
    // The phases add up, and the pass is started once.
    let cost = timing.pass_ms(&[chunk(256, 0)], batch);
    close(
        cost.prefill_ms + cost.decode_ms,
        timing.prefill_ms(&[chunk(256, 0)]) + timing.decode_ms(batch) - 0.25,
    );
    assert_eq!(timing.extrapolated_lookups(), Some(0));
    timing.decode_ms(DecodeBatch { requests: 600, context_tokens: 600 * 500 });
    assert_eq!(timing.extrapolated_lookups(), Some(1));
    assert_eq!(grid.caution(), None);
}

#[test]
fn single_prompts_are_enough() {
    let mut text = csv(&[1]);
    for new in [128, 1024, 8192] {
        for prefix in [0, 2048] {
            let ms = 5.0 + 0.02 * f64::from(new) + 1e-3 * f64::from(prefix);
            writeln!(text, "1,{new},{prefix},,{ms}").unwrap();
        }
    }
    let timing = read(&text).unwrap().timing(0.0);
    let together = timing.prefill_ms(&[chunk(512, 0), chunk(512, 0)]);
    assert!((together / timing.prefill_ms(&[chunk(1024, 0)]) - 1.0).abs() < 1e-12);
    assert_eq!(timing.extrapolated_lookups(), Some(0));
}

#[test]
fn too_little_is_refused() {
    let error = read(&csv(&[1])).unwrap_err();
    assert_eq!(error, "6 prefill passes are too few to fit a table to: at least 12 are needed");
    let decode: String =
        csv(&[1, 2]).lines().filter(|line| !line.contains(",,,")).collect::<Vec<_>>().join("\n");
    assert!(read(&decode).unwrap_err().contains("0 decode passes are too few"));
    let mut single = CSV.to_owned();
    for step in 1..=12 {
        writeln!(single, "1,{},0,,{step}\n{step},,,100,{step}", 10 * step).unwrap();
    }
    let error = read(&single).unwrap_err();
    assert!(error.contains("new_tokens and one of batch and prefix_tokens have to vary"), "{error}");
    assert!(error.contains("batch and context_tokens have to vary"), "{error}");
}

#[test]
fn a_table_that_falls_is_pointed_out() {
    let text = csv(&[1, 2, 8]);
    let falling =
        text.lines().map(|line| if line.starts_with("512,,,32768,") { "512,,,32768,5" } else { line });
    let caution = read(&falling.collect::<Vec<_>>().join("\n")).unwrap().caution().unwrap();
    assert!(caution.contains("neighbouring values"), "{caution}");
}

/// An NPY file of `f8` or `i8` values.
fn npy(kind: &str, by_columns: bool, shape: &str, values: &[f64]) -> Vec<u8> {
    let order = if by_columns { "True" } else { "False" };
    let mut header = format!("{{'descr': '{kind}', 'fortran_order': {order}, 'shape': ({shape}), }}");
    while (header.len() + 11) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.bytes());
    for value in values {
        let bytes = if kind == "<i8" { (*value as i64).to_le_bytes() } else { value.to_le_bytes() };
        file.extend(bytes);
    }
    file
}

/// A ZIP archive; every other file is deflated.
fn zip(files: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let (mut archive, mut directory) = (Vec::new(), Vec::new());
    for (number, (name, content)) in files.iter().enumerate() {
        let packed = if number % 2 == 0 {
            content.clone()
        } else {
            let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(content).unwrap();
            encoder.finish().unwrap()
        };
        let method = if number % 2 == 0 { 0_u16 } else { 8 };
        let mut fields = vec![20, 0, 0, 0];
        fields[2..4].copy_from_slice(&[0, 0]);
        fields.extend(method.to_le_bytes());
        fields.extend([0; 8]);
        fields.extend((packed.len() as u32).to_le_bytes());
        fields.extend((content.len() as u32).to_le_bytes());
        fields.extend((name.len() as u16).to_le_bytes());
        fields.extend(0_u16.to_le_bytes());
        directory.extend(b"PK\x01\x02\x14\x00");
        directory.extend(&fields);
        directory.extend([0; 10]);
        directory.extend((archive.len() as u32).to_le_bytes());
        directory.extend(name.bytes());
        archive.extend(b"PK\x03\x04");
        archive.extend(&fields);
        archive.extend(name.bytes());
        archive.extend(packed);
    }
    let start = archive.len() as u32;
    archive.extend(&directory);
    archive.extend(b"PK\x05\x06\0\0\0\0");
    archive.extend((files.len() as u16).to_le_bytes());
    archive.extend((files.len() as u16).to_le_bytes());
    archive.extend((directory.len() as u32).to_le_bytes());
    archive.extend(start.to_le_bytes());
    archive.extend([0, 0]);
    archive
}

fn reference_files() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("prefill_isl.npy", npy("<i8", false, "3,", &[100.0, 200.0, 400.0])),
        ("prefill_ttft_ms.npy", npy("<f8", false, "3,", &[10.0, 20.0, 60.0])),
        ("decode_active_kv_tokens.npy", npy("<f8", false, "2,", &[1000.0, 3000.0])),
        ("decode_context_length.npy", npy("<f8", false, "3,", &[100.0, 200.0, 300.0])),
        // Rows are active tokens: 5, 6, 7 and 9, 10, 11; here column by column.
        ("decode_itl.npy", npy("<f8", true, "2, 3", &[5.0, 9.0, 6.0, 10.0, 7.0, 11.0])),
    ]
}

#[test]
fn a_grid_of_the_reference_is_read_as_it_is() {
    let grid = MeasuredGrid::read(&zip(&reference_files())).unwrap();
    let timing = grid.timing(0.0);
    assert_eq!(timing.prefill_ms(&[chunk(100, 5), chunk(50, 0)]), 15.0);
    assert_eq!(timing.prefill_ms(&[chunk(500, 0)]), 80.0);
    assert_eq!(timing.extrapolated_lookups(), Some(1));
    // 2000 tokens of 8 requests, 250 on average: half way between 6.5 and 10.5.
    assert_eq!(timing.decode_ms(DecodeBatch { requests: 8, context_tokens: 2000 }), 8.5);
    // The line through 5 and 9 would be below 1 at 0 tokens of length 0.
    assert_eq!(timing.decode_ms(DecodeBatch { requests: 100, context_tokens: 100 }), 2.21);
}

#[test]
fn crooked_archives_are_refused() {
    let refused = |bytes: &[u8]| {
        let problems = MeasuredGrid::read(bytes).unwrap_err();
        problems.into_iter().map(|problem| problem.message).collect::<Vec<_>>().join("; ")
    };
    let mut files = reference_files();
    let whole = zip(&files);
    for length in [4, 30, whole.len() / 2, whole.len() - 1] {
        assert!(!refused(&whole[..length]).is_empty());
    }
    files.remove(1);
    assert!(
        refused(&zip(&files)).starts_with("array `prefill_ttft_ms` is missing; there are: prefill_isl, ")
    );
    let mut files = reference_files();
    files[1].1 = npy("<f8", false, "2,", &[1.0, -2.0]);
    let error = refused(&zip(&files));
    assert!(error.contains("shape [2] beside 3 tokens") && error.contains("holds -2"), "{error}");
    files[1].1 = npy("|b1", false, "3,", &[1.0]);
    assert!(refused(&zip(&files)).contains("values of kind `|b1`"));
    files[1].1 = b"hello".to_vec();
    assert!(refused(&zip(&files)).contains("`prefill_ttft_ms` is no NumPy array"));
}
