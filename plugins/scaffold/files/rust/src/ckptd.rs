//! An SDK for ckptd plugins in Rust, without dependencies. docs/plugins.md in ckptd is the contract it
//! implements. A plugin exports its hooks; each is a function that passes a handler to `run`:
//!
//! ```
//! #[no_mangle]
//! pub extern "C" fn on_pre_save() -> i32 {
//!     ckptd::run(|input| match input.payload.len() {
//!         0..=99 => Ok(None), // unchanged
//!         _ => Ok(Some(input.payload[..100].to_vec())),
//!     })
//! }
//! ```
//!
//! The host resets the memory after every call, so nothing outlives a call.
#![allow(dead_code)]

mod host {
    #[link(wasm_import_module = "ckptd_v1")]
    extern "C" {
        pub fn input_len(slot: i32) -> i64;
        pub fn input_read(slot: i32, off: i64, to: *mut u8, len: usize) -> i32;
        pub fn output_write(from: *const u8, len: usize) -> i32;
        pub fn error_set(code: i32, text: *const u8, len: usize);
        pub fn log(level: i32, text: *const u8, len: usize);
        pub fn finding(rule: *const u8, rule_len: usize, path: *const u8, path_len: usize, count: i32);
        pub fn redact_builtin(set: *const u8, set_len: usize, from: *const u8, len: usize, to: *mut u8, cap: usize) -> i32;
        pub fn pseudonym(kind: i32, text: *const u8, len: usize, to: *mut u8) -> i32;
        pub fn blob_put(from: *const u8, len: usize, id: *mut u8) -> i32;
    }
}

#[no_mangle]
pub extern "C" fn ckptd_abi_v1() -> i32 {
    1
}

/// The input of a hook.
pub struct Input {
    /// The bytes of the item. For a json item: JSON text exactly as the caller of the save wrote it.
    pub payload: Vec<u8>,
}

impl Input {
    /// Describes the payload as a JSON object.
    pub fn meta(&self) -> Vec<u8> {
        read(1)
    }
}

/// The error of a handler that gives no output. Reasons are logged, so they must not quote the payload.
pub enum Error {
    /// The plugin's policy forbids storing or returning the item.
    Rejected(&'static str),
    /// The plugin cannot do its work. The code is its own, 16 or above.
    Failed(i32, &'static str),
}

/// Calls the handler with the input of the current hook and returns the exported function's result.
/// None leaves the payload unchanged.
pub fn run(handler: impl FnOnce(&Input) -> Result<Option<Vec<u8>>, Error>) -> i32 {
    match handler(&Input { payload: read(0) }) {
        Ok(None) => 1,
        Ok(Some(out)) if unsafe { host::output_write(out.as_ptr(), out.len()) } >= 0 => 0,
        Ok(Some(_)) => fail(Error::Failed(16, "the output is over the limit")),
        Err(e) => fail(e),
    }
}

/// Calls f with the configuration, a JSON object or empty. Call it from the export `ckptd_configure`,
/// which runs once, before the first hook.
pub fn configure(f: impl FnOnce(&[u8]) -> Result<(), Error>) -> i32 {
    match f(&read(2)) {
        Ok(()) => 0,
        Err(e) => fail(e),
    }
}

fn fail(e: Error) -> i32 {
    let (code, reason) = match e {
        Error::Rejected(reason) => (2, reason),
        Error::Failed(code, reason) => (code.max(16), reason),
    };
    unsafe { host::error_set(code, reason.as_ptr(), reason.len()) };
    code
}

fn read(slot: i32) -> Vec<u8> {
    let len = unsafe { host::input_len(slot) };
    if len <= 0 {
        return Vec::new();
    }
    let mut b = Vec::with_capacity(len as usize);
    unsafe {
        let got = host::input_read(slot, 0, b.as_mut_ptr(), len as usize);
        b.set_len(got.max(0) as usize);
    }
    b
}

#[derive(Clone, Copy)]
pub enum Level {
    Debug = 0,
    Info = 1,
    Warn = 2,
    Error = 3,
}

/// Writes a line to the host's log. It must not quote the payload.
pub fn log(level: Level, line: &str) {
    unsafe { host::log(level as i32, line.as_ptr(), line.len()) }
}

/// Reports that a rule matched count times at a path, a JSON pointer or "". Never quote the match
/// itself.
pub fn finding(rule: &str, path: &str, count: i32) {
    unsafe { host::finding(rule.as_ptr(), rule.len(), path.as_ptr(), path.len(), count) }
}

/// Passes JSON or text through the host's redactor, with the rules of a set ("" for the default set).
/// Returns None without the capability redact_builtin.
pub fn redact_builtin(set: &str, data: &[u8]) -> Option<Vec<u8>> {
    let mut out: Vec<u8> = Vec::with_capacity(data.len() + data.len() / 4 + 256);
    loop {
        let n = unsafe { host::redact_builtin(set.as_ptr(), set.len(), data.as_ptr(), data.len(), out.as_mut_ptr(), out.capacity()) };
        if n >= 0 {
            unsafe { out.set_len(n as usize) };
            return Some(out);
        }
        if n > -16 {
            return None;
        }
        out.reserve(n.unsigned_abs() as usize);
    }
}

/// Returns a pseudonym for text: the same for the same text, kind and user. It depends on one of the
/// user's keys and cannot be linked to the text once that key is destroyed. Returns None without the
/// capability pseudonym.
pub fn pseudonym(kind: i32, text: &[u8]) -> Option<[u8; 32]> {
    let mut p = [0; 32];
    (unsafe { host::pseudonym(kind, text.as_ptr(), text.len(), p.as_mut_ptr()) } >= 0).then_some(p)
}

/// Stores data as a blob of the user, together with the item, and returns its id. Returns None without
/// the capability blob_put.
pub fn put_blob(data: &[u8]) -> Option<[u8; 32]> {
    let mut id = [0; 32];
    (unsafe { host::blob_put(data.as_ptr(), data.len(), id.as_mut_ptr()) } >= 0).then_some(id)
}
