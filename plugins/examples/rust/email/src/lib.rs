//! A plugin that keeps email addresses out of what is stored: bob@example.com becomes [EMAIL]. It looks at the bytes of
//! JSON or text once and needs no parser: what is left stays as it was, byte for byte.

// ckptd.rs is what ckptd plugin new writes beside the source.
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
    let mut start = 0; // where the run of characters of a local part began that ends at i
    while i < b.len() {
        if LOCAL[b[i] as usize] {
            i += 1;
            continue;
        }
        let (c, mut end) = next(b, i);
        if LOCAL[c as usize] {
            i = end;
            continue;
        }
        if c == b'@' && start < i {
            if let Some(stop) = domain(b, end) {
                out.extend_from_slice(&b[copied..start]);
                out.extend_from_slice(MASK);
                (copied, end) = (stop, stop);
                found += 1;
            }
        }
        (i, start) = (end, end);
    }
    if found == 0 {
        return Ok(None);
    }
    ckptd::finding("email", "", found);
    out.extend_from_slice(&b[copied..]);
    Ok(Some(out))
}

/// Returns where the domain name ends that begins at i: labels with dots between them, the last of which is two letters or
/// more.
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

/// Returns the character at i, 0 for one that is in no address, and where the one after it begins. \u0040 is an @; any
/// number of backslashes is one escape, as JSON in a string of JSON has it.
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

/// The characters of a local part.
static LOCAL: [bool; 256] = {
    let mut table = [false; 256];
    let mut c = 0;
    while c < 256 {
        let b = c as u8;
        table[c] = b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'%' | b'+' | b'-');
        c += 1;
    }
    table
};
