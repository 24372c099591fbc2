//! The search policy: which kind of epoch comes next, when it ends, and which examples a pass skips. It does not
//! change the optimum. The constants of its decisions are in [`Tuning`]; limits that fits rarely reach are below it.

/// The constants of the policy. `docs/experiments.md` compares fits with and without parts of the policy, and with
/// other values of some constants.
pub(super) struct Tuning;

impl Tuning {
    /// If more than this share of all (example, class) pairs are candidates, a full epoch is
    /// cheaper than a working-set epoch, because it takes less time per pair
    /// (docs/benchmarks/linear.md, "A thousand classes", the first epochs).
    pub const FULL_SHARE: f64 = 0.2;
    /// Maximum number of full epochs in a run. After them, working-set epochs follow, because slow runs need conjugate
    /// gradients (LIBLINEAR, letter).
    pub const MAX_FULL: usize = 12;
    /// An epoch ends once a pass gains less than this share of the gain of the epoch's first pass (LIBLINEAR, C = 1).
    pub const LAST_SHARE: f64 = 0.03;
    /// Likewise in epochs without conjugate gradients, in which most passes skip most examples (LIBLINEAR, news20).
    pub const LAST_SHARE_OF_VISITS: f64 = 0.005;
    /// An epoch also ends once the estimate of the gap is below this share of the tolerance (Weston-Watkins).
    pub const SAFE: f64 = 0.8;
    /// Passes stall if a pass gains more than this share of the gain `WINDOW` passes earlier (LIBLINEAR, C = 10).
    pub const STALLING: f64 = 0.8;
    /// Number of recent passes over which gains of visits are averaged, because passes skip different examples. It is
    /// also the minimum number of passes between two attempts at conjugate gradients; only then is their pace known
    /// (LIBLINEAR, news20 with C = 1 and letter with C = 10).
    pub const WINDOW: usize = 3;
    /// Maximum number of consecutive passes that skip an example (news20).
    pub const LONGEST_WAIT: u8 = 16;
    /// An example whose visit gains less than this share of the mean gain of recent visits is skipped in the next
    /// passes (news20, noise in 50 classes).
    pub const SMALL: f64 = 0.6;
    /// Epochs without conjugate gradients stall if more than this share of the gap remains after them (news20).
    pub const QUICK: f64 = 0.25;
    /// Number of weights up to which conjugate gradients are cheap enough to be used from the first epoch on
    /// (LIBLINEAR, satimage and letter).
    pub const FEW_WEIGHTS: usize = 1024;
    /// With more weights, the minimum number of values per weight that a pass over the face reads. Each conjugate
    /// gradient step also clears, reads and writes all weights, so on thinner faces visits gain more in the same time
    /// (news20, C = 10).
    pub const NUMBERS_PER_WEIGHT: usize = 8;
}

/// The result of one pass over examples.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct PassGain {
    /// Increase of the dual (in units of λ).
    pub gain: f64,
    /// Whether any change of β increased the dual; in a full epoch, whether any β changed.
    pub changed: bool,
    /// The apparent gain that rounding errors alone can cause; 0 in double precision.
    pub rounding: f64,
    pub n_visits: usize,
    /// Number of values read, including the overhead of the visits.
    pub n_read: usize,
}

impl PassGain {
    /// Whether the dual rose by clearly more than rounding errors can explain. The factor of 2 is needed because the
    /// first visits after the weights are recomputed have larger apparent gains than later ones.
    pub fn moved(&self) -> bool {
        self.changed && (self.rounding == 0.0 || self.gain > 2.0 * self.rounding)
    }
}

/// The kinds of epochs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EpochKind {
    /// All classes of the examples that are due.
    Full,
    /// Only the candidates of the examples that are due.
    WorkingSet,
}

/// Whether the maximum number of full epochs has been run and their gains still hardly fall.
pub(super) fn are_steady(gains: &[f64]) -> bool {
    let earlier = gains.len().checked_sub(Tuning::WINDOW + 1);
    gains.len() == Tuning::MAX_FULL
        && earlier.is_some_and(|at| gains[gains.len() - 1] > Tuning::STALLING * gains[at])
}

/// All state of the search policy.
#[derive(Debug)]
pub(super) struct Schedule {
    /// The relative gap at which the run ends; 0 if unknown.
    tolerance: f64,
    /// Number of full epochs so far.
    n_full: usize,
    /// The most recent passes over the working set, starting with the pass before the last attempt.
    passes: Vec<PassGain>,
    /// The first pass of the epoch.
    first: PassGain,
    /// Number of passes in this epoch.
    n_passes: usize,
    /// Whether the epoch only visits examples, without conjugate gradients.
    visits_only: bool,
    /// Whether some epoch without conjugate gradients ran until passes gained little and still hardly reduced the gap.
    /// Kept when λ changes.
    stalled: bool,
    /// Whether the last epoch ran until passes gained little.
    gains_little: bool,
    /// The relative gap of the last certificate.
    gap: f64,
    /// The relative gap of the certificate before the last working-set epoch.
    gap_before: f64,
    /// The gap to reach, in the same units as the gains. Each certificate updates it; before the first certificate,
    /// it is an estimate from gains.
    wanted: f64,
    /// The gap of the last certificate divided by its unit (`gap_unit`).
    factor: f64,
    /// Number of examples left in the epoch after the last pass.
    n_active: usize,
    /// Maximum number of steps of the next conjugate gradient attempt.
    n_steps: usize,
    /// Number of values read so far.
    work: f64,
    /// The work after which epochs end early.
    most_work: f64,
}

/// Overhead of a visit, in units of values read.
pub(super) const VISIT_OVERHEAD: usize = 256;
/// Maximum number of passes between two certificates, which report progress. Most epochs end earlier.
const MAX_PASSES: usize = 200;
/// Range of the maximum number of steps of a conjugate gradient attempt.
const STEPS: std::ops::RangeInclusive<usize> = 3..=60;
/// Maximum number of steps of the first attempt.
const FIRST_STEPS: usize = 10;

impl Schedule {
    /// Creates the schedule of a new run.
    pub fn new(tolerance: f64) -> Self {
        Self {
            tolerance,
            n_full: 0,
            passes: Vec::new(),
            first: PassGain::default(),
            n_passes: 0,
            visits_only: false,
            stalled: false,
            gains_little: false,
            gap: f64::INFINITY,
            gap_before: f64::INFINITY,
            wanted: 0.0,
            factor: f64::NAN,
            n_active: 0,
            n_steps: FIRST_STEPS,
            work: 0.0,
            most_work: f64::INFINITY,
        }
    }

    /// Sets a guess of the ratio of the gap to its unit, used until there is a certificate.
    pub fn guess_ratio(&mut self, factor: f64) {
        self.factor = factor;
    }

    /// Records a full epoch. Before the first certificate, the increase of the dual is the only estimate of the
    /// objective.
    pub fn note_full(&mut self, pass: PassGain) {
        self.work += pass.n_read as f64;
        if self.gap == f64::INFINITY {
            self.wanted += self.tolerance * pass.gain;
        }
    }

    /// Number of values read so far.
    pub fn work(&self) -> f64 {
        self.work
    }

    /// Sets the work after which epochs end early.
    pub fn limit_work(&mut self, most: f64) {
        self.most_work = most;
    }

    /// Records values read outside passes.
    pub fn note_read(&mut self, n_read: usize) {
        self.work += n_read as f64;
    }

    /// Maximum number of steps of the next conjugate gradient attempt.
    pub fn n_steps(&self) -> usize {
        self.n_steps
    }

    /// Records an attempt: how often its total step was shortened until it gained, or None if it never gained. Adapts
    /// the maximum number of steps: after a total step that gained without being shortened, the next attempt may take
    /// more steps.
    pub fn note_attempt(&mut self, n_shortened: Option<usize>) {
        self.passes.drain(..self.passes.len().saturating_sub(1));
        self.n_steps = match n_shortened {
            Some(0) => self.n_steps * 3 / 2,
            Some(1) => self.n_steps,
            Some(_) => self.n_steps * 2 / 3,
            None => self.n_steps / 2,
        };
        self.n_steps = self.n_steps.clamp(*STEPS.start(), *STEPS.end());
    }

    /// The kind of the next epoch, given the total number of candidates of the examples that are due (None if unknown)
    /// and the number of all (example, class) pairs.
    pub fn next_epoch(&self, n_candidates: Option<usize>, n_pairs: usize) -> EpochKind {
        let is_wide = |n: usize| n as f64 > Tuning::FULL_SHARE * n_pairs as f64;
        match self.n_full < Tuning::MAX_FULL && n_candidates.is_none_or(is_wide) {
            true => EpochKind::Full,
            false => EpochKind::WorkingSet,
        }
    }

    /// Counts a full epoch; returns whether another one came before it.
    pub fn begin_full(&mut self) -> bool {
        self.passes.clear();
        self.n_full += 1;
        self.n_full > 1
    }

    /// Whether a relative gap is small enough to end the run.
    pub fn is_met(&self, gap: f64) -> bool {
        gap <= self.tolerance
    }

    /// Whether the next epoch uses conjugate gradients, given the number of weights and the number of values that a
    /// pass over the face would read.
    pub fn wants_conjugate_gradients(
        &self,
        n_weights: usize,
        n_numbers: impl FnOnce() -> usize,
    ) -> bool {
        let are_few = n_weights <= Tuning::FEW_WEIGHTS;
        are_few || self.is_slow() && n_numbers() >= Tuning::NUMBERS_PER_WEIGHT * n_weights
    }

    /// Whether visits alone have hardly reduced the gap.
    fn is_slow(&self) -> bool {
        let is_large = self.gap > Tuning::QUICK * self.gap_before;
        self.stalled || self.visits_only && self.gains_little && is_large
    }

    /// Begins an epoch over the working set, with or without conjugate gradients.
    pub fn begin_working_set(&mut self, with_gradients: bool) {
        self.stalled = self.is_slow();
        // Passes that skip examples gain less, so they do not show whether later passes stall.
        let n_kept = if self.visits_only && with_gradients { 0 } else { Tuning::WINDOW };
        self.passes.drain(..self.passes.len().saturating_sub(n_kept));
        (self.visits_only, self.gap_before, self.n_passes) = (!with_gradients, self.gap, 0);
    }

    /// Whether examples whose visits gain little are skipped for some passes.
    pub fn leaves_out(&self) -> bool {
        self.visits_only
    }

    /// The gain of a visit below which its example is skipped for some passes.
    pub fn small_gain(&self) -> f64 {
        let (gain, n_visits) = self.recent(Tuning::WINDOW);
        Tuning::SMALL * gain / n_visits.max(1) as f64
    }

    /// Total gain and total number of visits of the last `n` passes.
    fn recent(&self, n: usize) -> (f64, usize) {
        let recent = &self.passes[self.passes.len().saturating_sub(n)..];
        let add = |(gain, n_visits), pass: &PassGain| (gain + pass.gain, n_visits + pass.n_visits);
        recent.iter().fold((0.0, 0), add)
    }

    /// Records a pass over the working set.
    pub fn note(&mut self, pass: PassGain) {
        self.work += pass.n_read as f64;
        self.n_passes += 1;
        self.first = if self.n_passes == 1 { pass } else { self.first };
        self.passes.push(pass);
    }

    /// Whether the epoch over `n_active` examples ends. It is called only after a pass of visits. A visit makes the
    /// block of its example optimal at the current weights, which improves the primal value more than the dual value.
    pub fn ends_epoch(&mut self, n_active: usize) -> bool {
        self.n_active = n_active;
        let Some(last) = self.passes.last() else { return true };
        let share =
            if self.visits_only { Tuning::LAST_SHARE_OF_VISITS } else { Tuning::LAST_SHARE };
        // After a pass that gains less than rounding errors can explain, further passes would only add rounding errors.
        self.gains_little = last.gain <= share * self.first.gain
            || last.gain < last.rounding
            || self.n_passes >= MAX_PASSES;
        let is_near = self.factor * self.gap_unit(n_active) <= Tuning::SAFE * self.wanted;
        let is_late = self.work > self.most_work;
        n_active == 0 || self.n_passes > 1 && (self.gains_little || is_near || is_late)
    }

    /// Unit of the gap: √(n g) for n blocks with a total gain of g. If the slopes of a block are off by δ, its gap is
    /// of order δ, and the gain of a visit is of order δ².
    fn gap_unit(&self, n_blocks: usize) -> f64 {
        let window = if self.visits_only { Tuning::WINDOW } else { 1 };
        let n_passes = window.min(self.passes.len()).max(1);
        (self.recent(window).0 / n_passes as f64 * n_blocks as f64).sqrt()
    }

    /// Whether passes stall and an attempt at conjugate gradients is due.
    pub fn attempts(&self) -> bool {
        !self.visits_only && self.pace().is_some_and(|pace| pace > Tuning::STALLING)
    }

    /// The gain of the last pass relative to the gain `WINDOW` passes earlier. None until `WINDOW` passes have followed
    /// an attempt. Passes of earlier epochs count too, because short epochs may also stall.
    fn pace(&self) -> Option<f64> {
        let last = self.passes.last()?.gain;
        let earlier = self.passes.len().checked_sub(Tuning::WINDOW + 1)?;
        Some(last / self.passes[earlier].gain)
    }

    /// Learns from a certificate: its relative gap, and its gap and objective in the same units as the gains.
    pub fn learn(&mut self, relative: f64, (gap, objective): (f64, f64)) {
        self.gap = relative;
        self.wanted = self.tolerance * objective;
        let unit = self.gap_unit(self.n_active);
        if unit > 0.0 {
            self.factor = gap / unit;
        }
    }

    /// Whether a full epoch has been run.
    pub fn has_begun(&self) -> bool {
        self.n_full > 0
    }

    /// Resets the schedule for another λ. At a larger λ, full epochs may pay again.
    pub fn restart(&mut self, is_larger: bool) {
        self.n_full = if is_larger { 0 } else { self.n_full };
        (self.n_steps, self.gap_before) = (FIRST_STEPS, f64::INFINITY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(gain: f64) -> PassGain {
        PassGain { gain, changed: gain > 0.0, rounding: 0.0, n_visits: 10, n_read: 0 }
    }

    fn after(gains: &[f64]) -> Schedule {
        let mut schedule = Schedule::new(1e-3);
        schedule.begin_working_set(true);
        gains.iter().for_each(|gain| schedule.note(pass(*gain)));
        schedule
    }

    #[test]
    fn wide_candidates_ask_for_full_epochs_up_to_a_limit() {
        let mut schedule = Schedule::new(0.0);
        assert_eq!(schedule.next_epoch(None, 1000), EpochKind::Full);
        assert_eq!(schedule.next_epoch(Some(201), 1000), EpochKind::Full);
        assert_eq!(schedule.next_epoch(Some(200), 1000), EpochKind::WorkingSet);
        assert!(!schedule.begin_full());
        (1..Tuning::MAX_FULL).for_each(|_| assert!(schedule.begin_full()));
        assert_eq!(schedule.next_epoch(Some(1000), 1000), EpochKind::WorkingSet);
    }

    #[test]
    fn an_epoch_ends_when_little_is_gained_or_the_gap_is_near() {
        assert!(!after(&[1.0]).ends_epoch(10));
        assert!(!after(&[1.0, 0.5]).ends_epoch(10));
        assert!(after(&[1.0, 0.02]).ends_epoch(10));
        assert!(after(&[1.0, 0.5]).ends_epoch(0));
        assert!(after(&[1e-3; MAX_PASSES]).ends_epoch(10));
        let mut rounded = after(&[1.0]);
        rounded.note(PassGain { rounding: 0.6, ..pass(0.5) });
        assert!(rounded.ends_epoch(10));
        // The gap is estimated as 2 after a gain of 1 over 4 blocks, and falls with the square root of the gain.
        let mut schedule = after(&[1.0, 1.0]);
        assert!(!schedule.ends_epoch(4));
        schedule.learn(0.1, (2.0, 300.0));
        schedule.begin_working_set(true);
        schedule.note(pass(0.5));
        schedule.note(pass(0.1));
        assert!(!schedule.ends_epoch(4));
        schedule.note(pass(0.0143));
        assert!(schedule.ends_epoch(4));
    }

    #[test]
    fn stalling_passes_attempt_conjugate_gradients_and_then_wait() {
        assert!(!after(&[1.0, 1.0, 1.0]).attempts());
        assert!(!after(&[1.0, 0.9, 0.8, 0.7]).attempts());
        let mut schedule = after(&[1.0, 1.0, 1.0, 0.9]);
        assert!(schedule.attempts());
        schedule.note_attempt(None);
        for _ in 1..Tuning::WINDOW {
            schedule.note(pass(0.9));
            assert!(!schedule.attempts());
        }
        schedule.note(pass(0.9));
        assert!(schedule.attempts());
    }

    #[test]
    fn attempts_take_more_steps_after_whole_steps_that_gain() {
        let after = |outcomes: &[Option<usize>]| {
            let mut schedule = Schedule::new(0.0);
            outcomes.iter().for_each(|n_shortened| schedule.note_attempt(*n_shortened));
            schedule.n_steps()
        };
        assert_eq!([after(&[]), after(&[Some(1)]), after(&[Some(0); 20])], [10, 10, *STEPS.end()]);
        assert_eq!([after(&[Some(0)]), after(&[Some(2)]), after(&[None])], [15, 6, 5]);
        assert_eq!(after(&[None; 5]), *STEPS.start());
    }

    #[test]
    fn visits_alone_are_slow_once_they_hardly_reduce_the_gap() {
        let mut schedule = Schedule::new(0.0);
        assert!(!schedule.is_slow());
        let uses =
            |schedule: &Schedule, n_numbers| schedule.wants_conjugate_gradients(2000, || n_numbers);
        assert!(!uses(&schedule, usize::MAX) && schedule.wants_conjugate_gradients(1024, || 0));
        schedule.begin_working_set(false);
        assert!(schedule.leaves_out());
        [1.0, 1.0, 1.0, 1.0].iter().for_each(|gain| schedule.note(pass(*gain)));
        assert!(!schedule.attempts());
        schedule.note(pass(0.001));
        assert!(schedule.ends_epoch(10));
        schedule.learn(0.1, (1.0, 10.0));
        assert!(!schedule.is_slow());
        schedule.begin_working_set(false);
        schedule.note(pass(1.0));
        schedule.note(pass(0.001));
        assert!(schedule.ends_epoch(10));
        schedule.learn(0.09, (0.9, 10.0));
        assert!(schedule.is_slow());
        assert!(uses(&schedule, 16_000) && !uses(&schedule, 15_999));
        // The gains of passes that skipped examples do not count.
        schedule.begin_working_set(true);
        assert!(!schedule.leaves_out());
        for _ in 0..=Tuning::WINDOW {
            assert!(!schedule.attempts());
            schedule.note(pass(1.0));
        }
        assert!(schedule.attempts());
    }

    #[test]
    fn the_gain_of_a_small_visit_follows_the_mean_of_recent_visits() {
        assert_eq!(after(&[]).small_gain(), 0.0);
        // Each pass has ten visits; the first pass is too old to count.
        let schedule = after(&[100.0, 3.0, 2.0, 1.0]);
        assert!((schedule.small_gain() - Tuning::SMALL * 0.2).abs() < 1e-12);
    }

    #[test]
    fn another_lambda_allows_full_epochs_again_if_it_is_larger() {
        let mut schedule = after(&[1.0, 1.0]);
        (0..Tuning::MAX_FULL).for_each(|_| _ = schedule.begin_full());
        schedule.note_attempt(Some(0));
        schedule.restart(false);
        assert_eq!(schedule.next_epoch(None, 1000), EpochKind::WorkingSet);
        assert_eq!(schedule.n_steps(), FIRST_STEPS);
        schedule.restart(true);
        assert_eq!(schedule.next_epoch(None, 1000), EpochKind::Full);
    }

    #[test]
    fn an_epoch_ends_at_the_limit_of_the_work() {
        let mut schedule = after(&[1.0]);
        schedule.limit_work(30.0);
        schedule.note(PassGain { n_read: 20, ..pass(1.0) });
        assert!(!schedule.ends_epoch(10));
        schedule.note_read(11);
        assert_eq!(schedule.work(), 31.0);
        assert!(schedule.ends_epoch(10));
    }

    #[test]
    fn gains_of_the_size_of_rounding_do_not_count() {
        assert!(PassGain { rounding: 0.4, ..pass(1.0) }.moved());
        assert!(!PassGain { rounding: 0.6, ..pass(1.0) }.moved() && !pass(0.0).moved());
    }
}
