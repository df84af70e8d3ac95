package service

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	cube "cubesandbox"
)

// reconcile brings what the records say and what there is together: first the plans
// that a crash has left, which are finished or taken back; then, for what is between
// verbs, the table in DESIGN.md.
func (s *Service) reconcile(ctx context.Context) error {
	recs, err := s.load(ctx)
	if err != nil {
		return err
	}
	if err := s.concludeAll(ctx, recs); err != nil {
		return err
	}
	s.forgetTorn(ctx)
	pauses := s.pauseImages()
	for _, b := range s.all() {
		if err := s.adopt(ctx, b, pauses[b.id]); err != nil {
			return err
		}
	}
	if err := s.buryUnknown(ctx); err != nil {
		return err
	}
	s.adoptSnapshots(ctx)
	s.takeInAll()
	if err := s.giveUpAll(ctx); err != nil {
		s.log.Error("what cannot be recovered any more keeps its secrets until the next start", "error", err)
	}
	for _, b := range s.all() {
		if b.rec.Phase == cube.PhaseRunning {
			s.cpus.take(b.rec.Limits.CPUs)
		}
	}
	return nil
}

// load reads what is on disk. Timers are set when all is together: what is overdue must
// not act on half of it.
func (s *Service) load(ctx context.Context) (map[cube.SandboxID]cube.Record, error) {
	recs, err := s.store.Sandboxes(ctx)
	if err != nil {
		return nil, err
	}
	snaps, err := s.store.Snapshots(ctx)
	if err != nil {
		return nil, err
	}
	answers, err := s.store.Answers(ctx)
	if err != nil {
		return nil, err
	}
	hidden, err := s.images.Hidden()
	if err != nil {
		return nil, err
	}
	all := map[cube.SandboxID]cube.Record{}
	for _, r := range recs {
		all[r.ID] = r
		switch r.Phase {
		case cube.PhaseEnded:
			s.ended[r.ID] = r
		case cube.PhaseCreating: // nobody can find it yet
		default:
			s.boxes[r.ID] = newBox(r)
		}
	}
	for _, snap := range snaps {
		s.snapshots[snap.ID] = snap
	}
	for _, a := range answers {
		s.answers[a.Key] = a
	}
	for _, id := range hidden {
		s.hidden[id] = true
	}
	return all, nil
}

// concludeAll finishes plans, or takes them back. Records in a phase of a verb without a
// plan are those of an older version: the phase says what the plan was.
func (s *Service) concludeAll(ctx context.Context, recs map[cube.SandboxID]cube.Record) error {
	plans, err := s.store.Plans(ctx)
	if err != nil {
		return err
	}
	planned, saving := map[cube.SandboxID]bool{}, map[cube.ImageID]bool{}
	for _, p := range plans {
		saving[p.Image] = saving[p.Image] || p.Verb == cube.VerbSnapshot
		for _, id := range p.Made {
			planned[id] = true
		}
		if r, ok := recs[p.Sandbox]; ok && r.Phase == phaseOf[p.Verb] {
			planned[p.Sandbox] = true
		}
	}
	for id, r := range recs {
		if p, ok := implied(r); ok && !planned[id] {
			plans = append(plans, p)
		}
	}
	for _, snap := range s.snapshots {
		if snap.State == cube.SnapshotCreating && !saving[snap.ID] {
			p := newPlan(cube.VerbSnapshot, snap.Source)
			p.Image = snap.ID
			plans = append(plans, p)
		}
	}
	for _, p := range plans {
		w := s.rebuild(p, recs)
		s.plans[p.ID] = w
		if err := s.conclude(ctx, w); err != nil {
			s.unsettled = append(s.unsettled, w)
			s.log.Error("a verb that was under way could not be concluded; it is tried again", "sandbox", p.Sandbox, "verb", p.Verb, "error", err)
		}
	}
	return nil
}

// concludeAgain tries what a start could not conclude.
func (s *Service) concludeAgain() {
	left := s.unsettled
	s.unsettled = nil
	for _, w := range left {
		if err := s.concludeOne(w); err != nil {
			s.unsettled = append(s.unsettled, w)
		}
	}
}

// concludeOne does so with the turn of its sandbox, unless another verb has come.
func (s *Service) concludeOne(w *work) error {
	s.mu.RLock()
	_, still := s.plans[w.ID]
	b := s.boxes[w.Sandbox]
	s.mu.RUnlock()
	if !still {
		return nil
	}
	switch _, about := phaseOf[w.Verb]; {
	case b != nil:
		b.enter()
		defer b.leave()
	case about && w.Verb != cube.VerbCreate: // it has ended by another verb, which could not record that
		w = s.abandoned(w.Plan)
	}
	return s.conclude(s.ctx, w)
}

// phaseOf is what a record is in while a verb is at work.
var phaseOf = map[cube.Verb]cube.Phase{
	cube.VerbCreate: cube.PhaseCreating, cube.VerbPause: cube.PhasePausing, cube.VerbResume: cube.PhaseResuming,
	cube.VerbRollback: cube.PhaseRollingBack, cube.VerbKill: cube.PhaseKilling, cube.VerbRecover: cube.PhaseRecovering,
}

// implied is the plan that a record's phase tells of.
func implied(r cube.Record) (cube.Plan, bool) {
	for verb, phase := range phaseOf {
		if phase == r.Phase {
			p := newPlan(verb, r.ID)
			p.Image = r.Image
			return p, true
		}
	}
	return cube.Plan{}, false
}

// rebuild makes the work of a plan from what is on disk.
func (s *Service) rebuild(p cube.Plan, recs map[cube.SandboxID]cube.Record) *work {
	b := s.boxes[p.Sandbox]
	switch p.Verb {
	case cube.VerbCreate, cube.VerbClone:
		of := p.Made
		if p.Verb == cube.VerbCreate {
			of = []cube.SandboxID{p.Sandbox}
		}
		var rs []cube.Record
		for _, id := range of {
			if r, ok := recs[id]; ok {
				rs = append(rs, r)
			}
		}
		w := s.making(p, rs, func(context.Context) error { return nil })
		if len(rs) < len(of) {
			w.from = never
		}
		return w
	case cube.VerbSnapshot:
		return s.saving(p, s.snapshots[p.Image])
	case cube.VerbDelete:
		return s.deleting(p)
	}
	// Its sandbox has ended since, or another verb has come after it.
	if b == nil || phaseOf[p.Verb] != b.rec.Phase || p.Image != b.rec.Image && p.Verb != cube.VerbRollback && p.Verb != cube.VerbKill {
		return s.abandoned(p)
	}
	switch p.Verb {
	case cube.VerbPause:
		return s.pausing(p, b, cube.Pausing{})
	case cube.VerbResume:
		return s.resuming(p, b, cube.Resumption{})
	case cube.VerbRollback:
		return s.rolling(p, b, b.rec.Generation)
	case cube.VerbRecover:
		old := b.rec
		old.Phase, old.Generation, old.Image, old.Recoverable = cube.PhaseEnded, old.Generation-1, "", true
		return s.recovering(p, b, old)
	default: // kill
		was := b.rec
		was.Phase = "" // its processors are not counted yet
		why := cube.Death{Reason: cube.DeathKilled, At: time.Now()}
		if was.End != nil {
			why = *was.End
		}
		return s.killing(p, b, was, why)
	}
}

// adopt decides what a sandbox between verbs is, given what the engine has and what
// was saved of it by pauses.
func (s *Service) adopt(ctx context.Context, b *box, pauses []cube.Image) error {
	sb, err := s.engine.Sandbox(ctx, b.id)
	has := err == nil
	if err != nil && !errors.Is(err, cube.ErrNotFound) {
		return err
	}
	r := b.rec
	switch {
	case r.Phase != cube.PhaseRunning && r.Phase != cube.PhasePaused:
		return nil // a verb that could not be concluded yet
	case r.Phase == cube.PhasePaused && s.published(r.Image):
		if has {
			s.bury(ctx, b.id)
		}
		return nil
	case r.Phase == cube.PhasePaused:
		s.adoptEnd(ctx, b, cube.Death{Reason: cube.DeathImage, Detail: "its saved state " + string(r.Image) + " is gone", At: time.Now()})
		return nil
	case has && sb.State != cube.StateDead:
		s.adoptRunning(ctx, b, sb)
		return nil
	case has && sb.Death != nil:
		s.adoptEnd(ctx, b, *sb.Death)
		return nil
	}
	if im, ok := newestOf(pauses, r.Generation); ok { // the machine stopped between the pause and its record
		r.Phase, r.Image, r.Generation, r.EndAt, r.ChangedAt = cube.PhasePaused, im.ID, im.Generation, time.Time{}, time.Now()
		b.set(r)
		return s.commit(ctx, cube.Batch{Sandboxes: []cube.Record{r}})
	}
	why := cube.Death{Reason: cube.DeathUnknown, Detail: "it ended while the server was not there", At: time.Now()}
	switch {
	case r.StartedAt.Before(s.conf.DownAt):
		why = cube.Death{Reason: cube.DeathKilled, Detail: "everything was ended: cube down", At: s.conf.DownAt}
	case r.ChangedAt.Before(bootTime()):
		why = cube.Death{Reason: cube.DeathMachine, Detail: "the machine was restarted", At: bootTime()}
	}
	s.adoptEnd(ctx, b, why)
	return nil
}

// pauseImages are what pauses have saved, by sandbox.
func (s *Service) pauseImages() map[cube.SandboxID][]cube.Image {
	images, err := s.images.Images()
	if err != nil {
		s.log.Warn("not every image can be read", "error", err)
	}
	of := map[cube.SandboxID][]cube.Image{}
	for _, im := range images {
		if im.Kind == cube.KindPause {
			of[im.Source] = append(of[im.Source], im)
		}
	}
	return of
}

// newestOf is the pause image of a sandbox's last life, if that is of the generation in
// its record or a later one. What an earlier life was paused to is out of date.
func newestOf(pauses []cube.Image, gen cube.Generation) (newest cube.Image, ok bool) {
	for _, im := range pauses {
		if im.Generation >= max(gen, 1) && (!ok || im.Generation > newest.Generation) {
			newest, ok = im, true
		}
	}
	return newest, ok
}

// bootTime is when the machine was started.
func bootTime() time.Time {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return time.Time{}
	}
	return time.Now().Add(-time.Duration(t.Nano()))
}

// saved reports whether an image is published, and is not what a power cut leaves of one
// that was not durable yet.
func (s *Service) saved(id cube.ImageID) bool {
	im, err := s.images.Image(id)
	torn := errors.Is(err, cube.ErrCorrupt) && !im.Durable
	return id != "" && !torn && !errors.Is(err, cube.ErrNotFound)
}

func (s *Service) published(id cube.ImageID) bool {
	_, err := s.images.Image(id)
	return id != "" && !errors.Is(err, cube.ErrNotFound)
}

func (s *Service) adoptRunning(ctx context.Context, b *box, sb cube.Sandbox) {
	r := b.rec
	if r.Generation == sb.Generation && r.Image == "" {
		return
	}
	// The engine gave it another life by itself.
	r.Generation, r.Image, r.ChangedAt = sb.Generation, "", time.Now()
	b.set(r)
	if err := s.apply(ctx, cube.Batch{Sandboxes: []cube.Record{r}}); err != nil {
		s.log.Error("the generation of a sandbox could not be recorded; the next start does", "sandbox", b.id, "error", err)
	}
}

func (s *Service) adoptEnd(ctx context.Context, b *box, why cube.Death) {
	if end := b.rec.EndAt; b.rec.OnTimeout == cube.OnTimeoutKill && !end.IsZero() && end.Before(time.Now()) {
		why = cube.Death{Reason: cube.DeathTimeout, Detail: why.Detail, At: end}
	}
	last, way := s.testament(b.rec, why)
	s.log.Warn("a sandbox has ended", "sandbox", b.id, "phase", b.rec.Phase, "reason", why.Reason, "detail", why.Detail, "recovery", way)
	if err := s.finish(ctx, b, &work{}, false, last); err != nil {
		// What the engine knows of it stays for the next start.
		s.log.Error("the end of a sandbox could not be recorded; the next start does", "sandbox", b.id, "error", err)
		s.unburied[b.id] = true
	}
}

// buryUnknown ends what the engine has and no record names.
func (s *Service) buryUnknown(ctx context.Context) error {
	live, err := s.engine.Sandboxes(ctx)
	if err != nil {
		return err
	}
	for _, sb := range live {
		if _, err := s.find(sb.ID); err != nil && !s.unburied[sb.ID] {
			s.log.Warn("a sandbox without a record is ended", "sandbox", sb.ID)
			s.bury(ctx, sb.ID)
		}
	}
	return nil
}
