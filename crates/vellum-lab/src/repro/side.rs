//! Runs work two at a time.
//!
//! Machines are values that share nothing, so what runs beside what has no influence on any figure.
//! Answers come back in the order of the questions. Two, because small hosts have that many cores.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::LabError;
use crate::interrupt;

/// Threads at one time.
const SIDE_BY_SIDE: usize = 2;

/// `work` of each item, in the items' order. The first error wins; Ctrl-C is one.
pub fn by_side<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> Result<R, LabError> + Sync,
) -> Result<Vec<R>, LabError> {
    let next = AtomicUsize::new(0);
    let answers: Vec<Mutex<Option<Result<R, LabError>>>> =
        items.iter().map(|_| Mutex::new(None)).collect();
    let one = || {
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(i) else { return };
            let answer = if interrupt::requested() { Err(LabError::Stopped) } else { work(item) };
            let failed = answer.is_err();
            if let Ok(mut slot) = answers[i].lock() {
                *slot = Some(answer);
            }
            if failed {
                next.store(items.len(), Ordering::Relaxed);
            }
        }
    };
    let threads = SIDE_BY_SIDE
        .min(items.len())
        .min(std::thread::available_parallelism().map_or(1, usize::from));
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(one);
        }
        one();
    });
    let mut done = Vec::with_capacity(items.len());
    let mut missing = false;
    for answer in answers {
        match answer.into_inner() {
            Ok(Some(answer)) => done.push(answer?),
            _ => missing = true,
        }
    }
    if missing { Err(LabError::failed("an experiment ended early")) } else { Ok(done) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_in_the_order_of_the_questions_and_an_error_wins() {
        let items: Vec<u64> = (0..50).collect();
        assert_eq!(
            by_side(&items, |n| Ok(n * n)).unwrap(),
            items.iter().map(|n| n * n).collect::<Vec<_>>()
        );
        let broken =
            by_side(&items, |&n| if n == 20 { Err(LabError::failed("twenty")) } else { Ok(n) });
        assert_eq!(broken, Err(LabError::failed("twenty")));
        assert_eq!(by_side(&[] as &[u64], |&n| Ok(n)), Ok(vec![]));
    }
}
