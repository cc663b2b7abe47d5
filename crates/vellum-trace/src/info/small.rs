//! Traces that are too small for the question.
use crate::header::NativeRun;
use crate::totals::Totals;

/// Pages of 4 KiB that a second-level TLB holds: 1,536 entries on Intel's cores since Skylake
/// (Intel 64 and IA-32 Architectures Optimization Reference Manual, section on Skylake's caches).
const TLB_PAGES: u64 = 1536;
/// A trace that touched less than this part of what the native run faulted is of something else.
const PART: u64 = 100;

/// Why a trace says nothing about page sizes; `None` if it may.
pub fn too_small(totals: &Totals, native: Option<&NativeRun>) -> Option<String> {
    let pages = totals.touched_pages;
    if let Some(native) = native.filter(|n| pages.saturating_mul(PART) < n.minor_faults) {
        return Some(format!(
            "too small to say anything about page sizes: it touched {pages} pages, less than 1 % \
             of the {} that the native run faulted",
            native.minor_faults
        ));
    }
    (pages < TLB_PAGES).then(|| {
        format!(
            "too small to say anything about page sizes: it touched {pages} pages, and a \
             second-level TLB holds {TLB_PAGES}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_too_small_below_a_tlb_or_a_hundredth_of_the_native_faults() {
        let totals = |touched_pages| Totals { touched_pages, ..Totals::default() };
        let native = NativeRun { minor_faults: 1_000_000, ..NativeRun::default() };
        assert!(too_small(&totals(1535), None).is_some_and(|t| t.contains("second-level TLB")));
        assert_eq!(too_small(&totals(1536), None), None);
        let part = too_small(&totals(9_999), Some(&native));
        assert!(part.is_some_and(|t| t.contains("less than 1 %")));
        assert_eq!(too_small(&totals(10_000), Some(&native)), None);
    }
}
