//! What was published: calls that were measured, and their cycles, over eight builds of a system.

/// Mean cycles of a call in each of eight runs.
type Runs = [f64; 8];

/// A function before, with the cursor in loops (M1), and in the page fault too (M2).
pub struct Function {
    /// Its name.
    pub name: &'static str,
    /// Cycles before.
    pub before: Runs,
    /// By M1, by M2.
    pub after: [Runs; 2],
}

/// The names of the two changes.
pub const CHANGES: [&str; 2] = ["M1", "M2"];
/// Cycles of a call that allocates, before, as the mean of the eight runs weighted by calls.
pub const ALLOC: f64 = 1554.0;

/// All four.
pub const FUNCTIONS: [Function; 4] = [
    Function {
        name: "alloc",
        before: [1554.729, 1552.514, 1549.887, 1561.882, 1549.712, 1552.072, 1562.294, 1548.842],
        after: [
            [1544.444, 1548.555, 1562.197, 1550.246, 1537.731, 1558.571, 1545.113, 1548.845],
            [1425.720, 1430.980, 1429.185, 1431.897, 1432.584, 1428.010, 1433.770, 1428.774],
        ],
    },
    Function {
        name: "grab_pages",
        before: [4054.885, 4205.652, 4275.697, 4292.254, 4850.907, 4373.656, 4396.158, 4444.767],
        after: [
            [3966.160, 4158.974, 4267.863, 4304.876, 4361.996, 4347.773, 4415.587, 4440.596],
            [3971.804, 4171.512, 4252.595, 4262.037, 4320.673, 4358.834, 4383.965, 4411.225],
        ],
    },
    Function {
        name: "grab",
        before: [617.069, 1715.092, 1664.234, 1651.418, 1728.750, 1931.006, 1754.634, 1709.980],
        after: [
            [526.909, 1682.835, 1564.899, 1462.497, 722.341, 1377.894, 1521.535, 1420.962],
            [512.424, 1643.118, 1291.880, 1898.723, 1583.469, 644.256, 1372.921, 1836.896],
        ],
    },
    Function {
        name: "kmem_back",
        before: [3784.632, 4417.242, 4592.661, 3848.929, 3735.706, 4253.343, 4396.908, 3507.879],
        after: [
            [3391.102, 3153.767, 2927.962, 3419.488, 4631.862, 3727.750, 3403.378, 3459.060],
            [5452.422, 2730.821, 3665.021, 4146.704, 3151.922, 5104.709, 3117.250, 4972.525],
        ],
    },
];

/// The difference of two rows over runs 2 to 8, and its standard error. The first run has its files
/// from a disk.
pub fn difference(before: &Runs, after: &Runs) -> [f64; 2] {
    let [a, b] = [mean(before), mean(after)];
    [b[0] - a[0], (a[1].powi(2) + b[1].powi(2)).sqrt()]
}

/// The mean of runs 2 to 8, and its standard error.
fn mean(runs: &Runs) -> [f64; 2] {
    let (runs, n) = (&runs[1..], runs.len() as f64 - 1.0);
    let mean = runs.iter().sum::<f64>() / n;
    let variance = runs.iter().map(|run| (run - mean).powi(2)).sum::<f64>() / (n - 1.0);
    [mean, (variance / n).sqrt()]
}

/// Whether a difference is noise: below three of its standard errors.
pub fn is_noise([difference, error]: [f64; 2]) -> bool {
    difference.abs() < 3.0 * error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_eight_published_differences_that_of_alloc_by_m2_alone_is_not_noise() {
        let mut real = Vec::new();
        for function in &FUNCTIONS {
            for (change, after) in CHANGES.iter().zip(&function.after) {
                if !is_noise(difference(&function.before, after)) {
                    real.push((function.name, *change));
                }
            }
        }
        assert_eq!(real, [("alloc", "M2")]);
    }
}
