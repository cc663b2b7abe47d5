//! The verbs, one file each.

pub(crate) mod advise;
pub(crate) mod collapse;
pub(crate) mod copy;
pub(crate) mod forbid_zeros;
pub(crate) mod inspect;
pub(crate) mod map;
pub(crate) mod poison;
pub(crate) mod protect;
pub(crate) mod remap;
pub(crate) mod spaces;
pub(crate) mod unmap;
pub(crate) mod unmap_page;
pub(crate) mod write_forced;

/// Lets a verb use the layers below.
macro_rules! over_faults {
    ($verb:ident) => {
        impl<M: crate::machine::Machine> Clone for $verb<'_, M> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<M: crate::machine::Machine> Copy for $verb<'_, M> {}

        impl<M: crate::machine::Machine> core::ops::Deref for $verb<'_, M> {
            type Target = crate::fault::Faults<M>;

            #[inline(always)]
            fn deref(&self) -> &crate::fault::Faults<M> {
                self.0
            }
        }
    };
}
pub(crate) use over_faults;
