//! A plugin that keeps email addresses out of stored data: bob@example.com becomes [EMAIL]. It scans
//! the bytes of JSON or text once and needs no parser: the rest stays byte for byte the same.

// ckptd plugin new writes ckptd.rs next to the source.
#[path = "../../../../scaffold/files/rust/src/ckptd.rs"]
mod ckptd;

use ckptd::{Error, Input};

const MASK: &[u8] = b"[EMAIL]";

#[no_mangle]
pub extern "C" fn on_pre_save() -> i32 {
    ckptd::run(redact)
}

fn redact(input: &Input) -> Result<Option<Vec<u8>>, Error> {
    let b = input.payload.as_slice();
    let mut out = Vec::new();
    let (mut i, mut copied, mut found) = (0, 0, 0);
    while let Some(n) = b[i..].iter().position(|&c| c == b'@' || c == b'\\') {
        let at = i + n;
        let (c, end) = next(b, at);
        i = end;
        if c != b'@' {
            continue;
        }
        let start = begin(b, copied, at);
        if let (true, Some(stop)) = (start < at, domain(b, end)) {
            out.extend_from_slice(&b[copied..start]);
            out.extend_from_slice(MASK);
            (copied, i) = (stop, stop);
            found += 1;
        }
    }
    if found == 0 {
        return Ok(None);
    }
    ckptd::finding("email", "", found);
    out.extend_from_slice(&b[copied..]);
    Ok(Some(out))
}

/// Returns the start of the local part that ends at i, not before low.
fn begin(b: &[u8], low: usize, mut i: usize) -> usize {
    loop {
        while i > low && is_local(b[i - 1]) {
            i -= 1;
        }
        if i == low || b[i - 1] != b'\\' {
            return i;
        }
        // The run begins inside an escape sequence.
        while i > low && b[i - 1] == b'\\' {
            i -= 1;
        }
        let (c, end) = next(b, i);
        if !is_local(c) {
            return end;
        }
    }
}

/// Returns the end of the domain name that begins at i: labels separated by dots, the last of which has
/// two letters or more.
fn domain(b: &[u8], mut i: usize) -> Option<usize> {
    let mut stop = None;
    for labels in 0.. {
        let (mut size, mut letters) = (0, true);
        let (mut c, mut after) = next(b, i);
        while c.is_ascii_alphanumeric() || c == b'-' {
            size += 1;
            letters = letters && c.is_ascii_alphabetic();
            i = after;
            (c, after) = next(b, i);
        }
        if labels > 0 && size >= 2 && letters {
            stop = Some(i);
        }
        if size == 0 || c != b'.' {
            break;
        }
        i = after;
    }
    stop
}

/// Returns the character at i, or 0 for one that cannot be in an address, and the index of the next
/// character. \u0040 is an @. Any number of backslashes counts as one escape, because JSON may be
/// nested in a string of JSON.
fn next(b: &[u8], mut i: usize) -> (u8, usize) {
    match b.get(i) {
        None => return (0, i),
        Some(b'\\') => {}
        Some(&c) => return (c, i + 1),
    }
    while b.get(i) == Some(&b'\\') {
        i += 1;
    }
    match b.get(i) {
        Some(b'"' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => (0, i + 1),
        Some(b'u') => match b.get(i + 1..i + 5).and_then(hex4) {
            Some(c) => (if c < 0x80 { c as u8 } else { 0 }, i + 5),
            None => (0, i),
        },
        _ => (0, i),
    }
}

fn hex4(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |n, &c| Some(n << 4 | (c as char).to_digit(16)?))
}

fn is_local(c: u8) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'%' | b'+' | b'-')
}
