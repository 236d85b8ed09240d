//! The format of a cache file.
//!
//! 8 magic bytes; SHA-256 of all that follows; the key; then the program, with little-endian `u32`
//! lengths and counts in front of the items they count.

use sha2::{Digest, Sha256};

use super::CacheKey;
use crate::device::nvrtc::{Compiled, CompiledKernel};
use crate::device::resources::Resources;

const MAGIC: &[u8; 8] = b"SBKERNEL";
const HASH_BYTES: usize = 32;

/// The file contents for a program.
pub(super) fn encode(compiled: &Compiled, key: CacheKey) -> Vec<u8> {
    let mut body = key.0.to_vec();
    put_number(&mut body, compiled.kernels.len() as u32);
    for kernel in &compiled.kernels {
        put_bytes(&mut body, kernel.expression.as_bytes());
        put_bytes(&mut body, kernel.symbol.as_bytes());
        body.push(u8::from(kernel.resources.is_some()));
        let used = kernel.resources.unwrap_or_default();
        for number in numbers(used) {
            put_number(&mut body, number);
        }
    }
    put_bytes(&mut body, compiled.log.as_bytes());
    put_bytes(&mut body, &compiled.image);

    let mut file = MAGIC.to_vec();
    file.extend(Sha256::digest(&body));
    file.extend(body);
    file
}

/// The program in a file, or `None` unless the file is whole and belongs to the key.
pub(super) fn decode(file: &[u8], key: CacheKey) -> Option<Compiled> {
    let rest = file.strip_prefix(MAGIC)?;
    let (hash, body) = rest.split_at_checked(HASH_BYTES)?;
    if Sha256::digest(body).as_slice() != hash {
        return None;
    }
    let mut reader = Reader(body.strip_prefix(&key.0)?);
    let count = reader.number()?;
    let mut kernels = Vec::new();
    for _ in 0..count {
        let expression = reader.text()?;
        let symbol = reader.text()?;
        let known = *reader.take(1)?.first()? != 0;
        let used = reader.resources()?;
        kernels.push(CompiledKernel { expression, symbol, resources: known.then_some(used) });
    }
    let log = reader.text()?;
    let image = reader.bytes()?.to_vec();
    reader.0.is_empty().then_some(Compiled { image, kernels, log })
}

fn numbers(used: Resources) -> [u32; 5] {
    let Resources { registers, stack_bytes, spill_store_bytes, spill_load_bytes, shared_bytes } =
        used;
    [registers, stack_bytes, spill_store_bytes, spill_load_bytes, shared_bytes]
}

fn put_number(body: &mut Vec<u8>, number: u32) {
    body.extend(number.to_le_bytes());
}

/// Appends length and bytes. Compiled kernels are far below 4 GiB; a larger one gives a file that
/// does not decode.
fn put_bytes(body: &mut Vec<u8>, bytes: &[u8]) {
    put_number(body, bytes.len() as u32);
    body.extend(bytes);
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.number()?;
        self.take(usize::try_from(len).ok()?)
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }

    fn resources(&mut self) -> Option<Resources> {
        Some(Resources {
            registers: self.number()?,
            stack_bytes: self.number()?,
            spill_store_bytes: self.number()?,
            spill_load_bytes: self.number()?,
            shared_bytes: self.number()?,
        })
    }
}
