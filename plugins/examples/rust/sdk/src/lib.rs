//! Calls every host function; the first byte of the payload selects which.

#[path = "../../../../scaffold/files/rust/src/ckptd.rs"]
mod ckptd;

use ckptd::{Error, Input, Level};
use std::sync::Mutex;

static CONFIG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

#[no_mangle]
pub extern "C" fn ckptd_configure() -> i32 {
    ckptd::configure(|config| {
        if config == br#"{"bad":true}"# {
            return Err(Error::Failed(20, "bad"));
        }
        *CONFIG.lock().unwrap() = config.to_vec();
        Ok(())
    })
}

#[no_mangle]
pub extern "C" fn on_pre_save() -> i32 {
    ckptd::run(act)
}

fn act(input: &Input) -> Result<Option<Vec<u8>>, Error> {
    let denied = || Error::Failed(16, "the host does not grant this: look at the capabilities in plugin.toml");
    let out = match input.payload[0] {
        b'm' => input.meta(),
        b'c' => CONFIG.lock().unwrap().clone(),
        b'x' => return Err(Error::Rejected("no")),
        b'f' => return Err(Error::Failed(20, "broken")),
        b'r' => ckptd::redact_builtin("personal", &input.payload).ok_or_else(denied)?,
        b'p' => ckptd::pseudonym(7, &input.payload).ok_or_else(denied)?.to_vec(),
        b'b' => ckptd::put_blob(&input.payload).ok_or_else(denied)?.to_vec(),
        b'l' => {
            ckptd::log(Level::Warn, "hello");
            ckptd::finding("rule", "/path", 3);
            return Ok(None);
        }
        _ => return Ok(None),
    };
    Ok(Some(out))
}
