//! What it takes to write a ckptd plugin in Rust, without dependencies. docs/plugins.md of ckptd is the contract of what
//! is in it. A plugin exports the hooks it has, each a function that hands a handler to `run`:
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
//! The host sets the memory back after every call, so nothing outlives one.
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

/// What a hook is called with.
pub struct Input {
    /// The bytes of the item: of a json item JSON text, as the caller of the save wrote it.
    pub payload: Vec<u8>,
}

impl Input {
    /// What the payload is, as a JSON object.
    pub fn meta(&self) -> Vec<u8> {
        read(1)
    }
}

/// How a handler ends that does not give an output. Reasons are logged, so they must not quote the payload.
pub enum Error {
    /// The plugin's policy wants the item neither stored nor handed out.
    Rejected(&'static str),
    /// The plugin cannot do its work; the code is its own, from 16 on.
    Failed(i32, &'static str),
}

/// Calls the handler with the input of the hook under way, and returns what the exported function must return. None
/// leaves the payload as it is.
pub fn run(handler: impl FnOnce(&Input) -> Result<Option<Vec<u8>>, Error>) -> i32 {
    match handler(&Input { payload: read(0) }) {
        Ok(None) => 1,
        Ok(Some(out)) if unsafe { host::output_write(out.as_ptr(), out.len()) } >= 0 => 0,
        Ok(Some(_)) => fail(Error::Failed(16, "the output is over the limit")),
        Err(e) => fail(e),
    }
}

/// Calls a function with the configuration, a JSON object or nothing, for the export `ckptd_configure`, which runs once,
/// before the first hook.
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

/// Writes a line to the log of the host. It must not quote the payload.
pub fn log(level: Level, line: &str) {
    unsafe { host::log(level as i32, line.as_ptr(), line.len()) }
}

/// Reports that a rule matched count times at a path, a JSON pointer or "". It must never quote what matched.
pub fn finding(rule: &str, path: &str, count: i32) {
    unsafe { host::finding(rule.as_ptr(), rule.len(), path.as_ptr(), path.len(), count) }
}

/// Passes JSON or text through the redactor of the host, with the rules of a set, "" for its default. None without the
/// capability redact_builtin.
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

/// What stands for text: the same for the same text, kind and user, and of no use without a key of the user's. None
/// without the capability pseudonym.
pub fn pseudonym(kind: i32, text: &[u8]) -> Option<[u8; 32]> {
    let mut p = [0; 32];
    (unsafe { host::pseudonym(kind, text.as_ptr(), text.len(), p.as_mut_ptr()) } >= 0).then_some(p)
}

/// Stores data as a blob of the user, together with the item, and returns its id. None without the capability blob_put.
pub fn put_blob(data: &[u8]) -> Option<[u8; 32]> {
    let mut id = [0; 32];
    (unsafe { host::blob_put(data.as_ptr(), data.len(), id.as_mut_ptr()) } >= 0).then_some(id)
}
