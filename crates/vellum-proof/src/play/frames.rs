//! Frames of objects that somebody gets at without the library: who grabbed them, and the kernel.

use vellum::GrabWait;
use vellum::addr::{PAGE_SIZE, Pfn};
use vellum::config::NumaPolicy;
use vellum::entry::Codec;
use vellum::error::ObjectError;
use vellum::machine::Machine;

use super::Play;
use super::objects::KERNEL;
use crate::command::ByteSpot;
use crate::small::samples;

impl<C: Codec> Play<'_, C> {
    pub(super) fn grab(&mut self, slot: u8, spot: ByteSpot, pages: u8) {
        let Some(slot) = self.object(slot) else { return };
        let (at, stamp) = (self.objects.at(slot, spot), self.stamps(1)[0]);
        let (first, (fails, _)) = (at / PAGE_SIZE as u64, self.fails());
        let handle = &self.objects.handle(slot).0;
        let got = self.vm.objects().grab(handle, at, pages.into(), GrabWait::Always);
        let end = self.objects.model(slot).bytes().div_ceil(PAGE_SIZE as u64);
        let wanted = end.saturating_sub(first).min(u64::from(pages).min(32));
        let there = got.as_ref().map_or(0, |pages| pages.frames().len() as u64);
        if let Ok(grabbed) = got {
            assert_eq!(grabbed.offset(), first * PAGE_SIZE as u64);
            for (index, &pfn) in (first..).zip(grabbed.frames()) {
                self.store_to_frame((slot, index), pfn, stamp);
            }
            self.vm.objects().release(grabbed, true);
        } else if let Err(error) = got {
            let fits = match error {
                ObjectError::Beyond => wanted == 0,
                ObjectError::NoMemory => true,
                ObjectError::Io => fails && self.objects.model(slot).is_paged(),
                _ => false,
            };
            assert!(fits && wanted == 0 || error != ObjectError::Beyond, "grab gave {error:?}");
            if error == ObjectError::NoMemory {
                self.no_memory();
            }
        }
        if there < wanted {
            assert!(self.scarce || fails, "{there} of {wanted} pages");
            self.objects.model_mut(slot).doubt(first + there);
        }
        self.usage_is(slot);
    }

    pub(super) fn back(&mut self, slot: u8, spot: ByteSpot, pages: u8) {
        let Some(slot) = self.object(slot) else { return };
        let (at, stamp) = (self.objects.at(slot, spot), self.stamps(1)[0]);
        let mut frames = vec![Pfn(0); pages.into()];
        let handle = &self.objects.handle(slot).0;
        let (count, got) = self.vm.objects().back(handle, at, NumaPolicy::Local, &mut frames);
        if slot != KERNEL {
            return assert_eq!((count, got), (0, Err(ObjectError::NotKernel)));
        }
        let first = at / PAGE_SIZE as u64;
        for (index, &pfn) in (first..).zip(&frames[..count]) {
            self.store_to_frame((slot, index), pfn, stamp);
        }
        let object = self.objects.model_mut(slot);
        match got {
            Ok(()) => assert_eq!(count, usize::from(pages)),
            Err(ObjectError::Beyond) => {
                assert!(!object.reaches(first + count as u64), "page {count} lies before the end");
            }
            Err(error) => {
                assert_eq!(error, ObjectError::NoMemory);
                object.doubt(first + count as u64);
                self.no_memory();
            }
        }
        self.usage_is(slot);
    }

    /// A frame holds what the page of that slot and index does, and from here on a byte more.
    fn store_to_frame(&mut self, (slot, index): (usize, u64), pfn: Pfn, stamp: u8) {
        let (machine, object) = (self.vm.machine(), self.objects.model_mut(slot));
        let mut contents = object.contents(index);
        for (i, at) in samples(0, PAGE_SIZE) {
            let mut byte = [0];
            // SAFETY: nobody else is at the page: it is this call's alone, or the kernel's.
            unsafe { machine.read(pfn, at, &mut byte) };
            assert_eq!(byte[0], contents[i], "the frame of page {index:#x}");
        }
        let (i, at) = samples(0, PAGE_SIZE).next().expect("samples");
        contents[i] = stamp;
        // SAFETY: as above.
        unsafe { machine.write(pfn, at, &[stamp]) };
        object.set(index, contents);
        object.note_write(index);
    }
}
