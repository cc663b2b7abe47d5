//! The pager that answers late: a CPU of its own, whose every access may come between those of the
//! others. When it has nothing to do it waits; what it is asked for it first passes over once, so
//! that those who can go on do so before it answers.

use vellum::entry::Codec;

use super::{PAGER, Stage, word_of};
use crate::explore::{Stop, pause};
use crate::matrix::failure::Failure;
use crate::matrix::model::WORDS;
use crate::matrix::states::OBJECT_PAGES;
use crate::small::disk::Trouble;
use crate::small::{BYTES, Contents};

impl<C: Codec> Stage<C> {
    /// Puts words on the disk that do not look like zeros, as far as its file goes.
    pub(super) fn fill_disk(&mut self) {
        let end = match self.state.late.map(|late| late.trouble) {
            Some(Trouble::Short(end)) => end,
            _ => u64::MAX,
        };
        for index in 0..OBJECT_PAGES {
            let mut page: Contents = [0; BYTES];
            for word in 0..WORDS {
                let value = word_of(0x80 + index, word);
                page[4 * word..][..4].copy_from_slice(&value.to_le_bytes());
            }
            crate::small::disk::cut(&mut page, index as u64, end);
            self.vm.machine().disk.borrow_mut().put(PAGER, index as u64, page);
            for (word, value) in self.on_disk(index).into_iter().enumerate() {
                self.start.object.set(index, word, value);
            }
        }
    }

    /// The words that the pager has of a page.
    pub(super) fn on_disk(&self, page: usize) -> [u32; WORDS] {
        let page = self.vm.machine().disk.borrow().page(PAGER, page as u64);
        let word = |n: usize| <[u8; 4]>::try_from(&page[4 * n..][..4]).map(u32::from_le_bytes);
        std::array::from_fn(|n| word(n).expect("four bytes"))
    }

    /// The pager, until everybody is at his end.
    pub fn answer_late(&self) {
        let m = self.vm.machine();
        loop {
            if let Some(run) = m.take_waiting() {
                let (page, pages) = ((run.run.offset() / 4096) as usize, run.run.frames().len());
                let writes = run.writes;
                let (answer, fails) = m.answer_late(run);
                let from = self.tick();
                // Of several pages nobody is told: the first is asked for alone.
                let told = fails && (writes || pages == 1);
                let n = self.failures.borrow().len();
                if told {
                    let failure = Failure { page, writes, from, to: usize::MAX };
                    self.failures.borrow_mut().push(failure);
                }
                self.vm.objects().answer(answer);
                if told {
                    self.failures.borrow_mut()[n].to = self.tick();
                }
            } else if self.over.get() == self.cpus && !m.disk.borrow().is_asked() {
                return;
            } else {
                pause(Stop::Wait);
            }
        }
    }

    /// From here on it answers at once, and all that it is asked for.
    pub(super) fn mend_pager(&self) {
        let mut disk = self.vm.machine().disk.borrow_mut();
        assert!(!disk.is_asked(), "the pager was asked for something that nobody waited for");
        (disk.is_late, disk.trouble) = (false, Trouble::None);
    }
}
