//! Identifiers by which TLBs keep spaces apart.
//!
//! A bit each; taken when a space is made, given back when it is gone and every CPU has dropped
//! what it held under it. When they run out a space gets identifier 0, which is flushed at each
//! load: slower and right. Rejected: generations with rollover, which share identifiers without
//! bound but make every switch look at a global word.

use crate::error::{Invalid, ensure};
use crate::machine::{Asid, Machine};
use crate::space::Space;
use crate::sync::atomic::Ordering;
use crate::tlb::Tlb;

/// Words of the bitmap: 4096 identifiers, all that x86_64 has. aarch64 can have more; the first
/// 4096 do.
pub(crate) const CONTEXT_WORDS: usize = 64;

const _: () = assert!(CONTEXT_WORDS * 64 - 1 <= u16::MAX as usize);

impl<M: Machine> Tlb<M> {
    fn asids(&self) -> usize {
        (self.rules.asids as usize).min(CONTEXT_WORDS * 64)
    }

    /// An identifier nobody has, or 0.
    pub fn take_asid(&self) -> Asid {
        let end = self.asids();
        for (i, word) in self.context_words().iter().enumerate().take(end.div_ceil(64)) {
            let mut seen = word.load(Ordering::Relaxed);
            loop {
                // Identifier 0 is never given.
                let taken = if i == 0 { seen | 1 } else { seen };
                let bit = taken.trailing_ones() as usize;
                if bit == 64 || i * 64 + bit >= end {
                    break;
                }
                match word.compare_exchange(
                    seen,
                    taken | 1 << bit,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => return Asid((i * 64 + bit) as u16),
                    Err(now) => seen = now,
                }
            }
        }
        Asid(0)
    }

    /// Whether each identifier is one space's, and taken. If they are all the spaces there are, no
    /// other is taken.
    pub fn check_asids(&self, spaces: &[&Space], all: bool) -> Result<(), Invalid> {
        let mut found = [0u64; CONTEXT_WORDS];
        for space in spaces {
            let id = self.record_of(space).asid.load(Ordering::Relaxed);
            if id == 0 {
                continue;
            }
            let (word, bit) = (id as usize / 64, 1 << (id % 64));
            let asids = self.asids() as u64;
            let right = id < asids && found[word] & bit == 0;
            ensure(right, "a space's identifier in the TLBs", space.id(), asids, id)?;
            found[word] |= bit;
        }
        for (i, (word, &found)) in self.context_words().iter().zip(&found).enumerate() {
            // Identifier 0 counts as taken from the first one on.
            let kept = word.load(Ordering::Relaxed) & if i == 0 { !1 } else { !0 };
            let right = found == kept || !all && found & !kept == 0;
            ensure(right, "identifiers in the TLBs that are taken", i as u64, kept, found)?;
        }
        Ok(())
    }

    /// Gives an identifier back; no CPU holds translations under it.
    pub fn give_asid(&self, asid: Asid) {
        let id = asid.0 as usize;
        if id != 0 {
            self.context_words()[id / 64].fetch_and(!(1 << (id % 64)), Ordering::AcqRel);
        }
    }
}
