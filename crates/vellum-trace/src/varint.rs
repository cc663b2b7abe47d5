//! Integers of few bytes: seven bits a byte, least significant first; signed ones zigzagged.
//!
//! Reading never panics: a number that runs off the buffer or over 64 bits is `None`.

/// Appends `v`.
pub(crate) fn put(out: &mut Vec<u8>, mut v: u64) {
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

/// Appends a signed `v`.
pub(crate) fn put_signed(out: &mut Vec<u8>, v: i64) {
    put(out, ((v << 1) ^ (v >> 63)) as u64);
}

/// Undoes the zigzag.
#[inline(always)]
fn unzigzag(v: u64) -> i64 {
    ((v >> 1) as i64) ^ -((v & 1) as i64)
}

/// A position in bytes to read from.
pub(crate) struct Bytes<'a> {
    data: &'a [u8],
    at: usize,
}

impl<'a> Bytes<'a> {
    pub(crate) fn new(data: &'a [u8]) -> Bytes<'a> {
        Bytes { data, at: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.at >= self.data.len()
    }

    #[inline(always)]
    pub(crate) fn byte(&mut self) -> Option<u8> {
        let b = *self.data.get(self.at)?;
        self.at += 1;
        Some(b)
    }

    pub(crate) fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(n)?;
        let s = self.data.get(self.at..end)?;
        self.at = end;
        Some(s)
    }

    #[inline(always)]
    pub(crate) fn varint(&mut self) -> Option<u64> {
        let mut v = 0u64;
        let mut shift = 0;
        loop {
            let b = self.byte()?;
            if shift == 63 && b > 1 {
                return None;
            }
            v |= u64::from(b & 0x7f) << shift;
            if b < 0x80 {
                return Some(v);
            }
            shift += 7;
            if shift > 63 {
                return None;
            }
        }
    }

    #[inline(always)]
    pub(crate) fn signed(&mut self) -> Option<i64> {
        self.varint().map(unzigzag)
    }

    pub(crate) fn varint32(&mut self) -> Option<u32> {
        u32::try_from(self.varint()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_width_come_back() {
        for shift in 0..64 {
            for v in [1u64 << shift, (1u64 << shift).wrapping_sub(1), u64::MAX >> shift] {
                let mut out = Vec::new();
                put(&mut out, v);
                put_signed(&mut out, v as i64);
                let mut b = Bytes::new(&out);
                assert_eq!(b.varint(), Some(v));
                assert_eq!(b.signed(), Some(v as i64));
                assert!(b.is_empty());
            }
        }
    }

    #[test]
    fn a_number_that_does_not_end_or_overflows_is_none() {
        assert_eq!(Bytes::new(&[0x80, 0x80]).varint(), None);
        assert_eq!(Bytes::new(&[0xff; 12]).varint(), None);
        assert_eq!(Bytes::new(&[]).varint(), None);
    }
}
