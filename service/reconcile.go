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
	pauses := s.pauseImages()
	for _, b := range s.all() {
		if err := s.adopt(ctx, b, pauses[b.id]); err != nil {
			return err
		}
	}
	if err := s.buryUnknown(ctx); err != nil {
		return err
	}
	if err := s.adoptSnapshots(ctx); err != nil {
		return err
	}
	s.takeInAll()
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
		saving[p.Image] = true
		for _, id := range append(p.Made, p.Sandbox) {
			planned[id] = true
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
			return err
		}
	}
	return nil
}

// implied is the plan that a record's phase tells of.
func implied(r cube.Record) (cube.Plan, bool) {
	verb, ok := map[cube.Phase]cube.Verb{
		cube.PhaseCreating: cube.VerbCreate, cube.PhasePausing: cube.VerbPause, cube.PhaseResuming: cube.VerbResume,
		cube.PhaseRollingBack: cube.VerbRollback, cube.PhaseKilling: cube.VerbKill, cube.PhaseRecovering: cube.VerbRecover,
	}[r.Phase]
	p := newPlan(verb, r.ID)
	p.Image = r.Image
	return p, ok
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
	if b == nil { // its sandbox has ended since; nothing is left to do
		w := &work{Plan: p, from: never}
		w.back = func(ctx context.Context) error { return s.apply(ctx, w.end(cube.Batch{})) }
		return w
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
		return s.killing(p, b, was, cube.Death{Reason: cube.DeathKilled, At: time.Now()})
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
	case r.Phase == cube.PhasePaused && s.published(r.Image):
		if has {
			s.bury(ctx, b.id)
		}
		return nil
	case r.Phase == cube.PhasePaused:
		return s.adoptEnd(ctx, b, cube.Death{Reason: cube.DeathImage, Detail: "its saved state " + string(r.Image) + " is gone", At: time.Now()})
	case has && sb.State != cube.StateDead:
		return s.adoptRunning(ctx, b, sb)
	case has && sb.Death != nil:
		return s.adoptEnd(ctx, b, *sb.Death)
	}
	for _, im := range pauses {
		if im.Generation == r.Generation && r.Generation > 0 { // the machine stopped between the pause and its record
			r.Phase, r.Image, r.EndAt, r.ChangedAt = cube.PhasePaused, im.ID, time.Time{}, time.Now()
			b.set(r)
			return s.commit(ctx, cube.Batch{Sandboxes: []cube.Record{r}})
		}
	}
	why := cube.Death{Reason: cube.DeathUnknown, Detail: "it ended while the server was not there", At: time.Now()}
	switch {
	case r.StartedAt.Before(s.conf.DownAt):
		why = cube.Death{Reason: cube.DeathKilled, Detail: "everything was ended: cube down", At: s.conf.DownAt}
	case r.ChangedAt.Before(bootTime()):
		why = cube.Death{Reason: cube.DeathMachine, Detail: "the machine was restarted", At: bootTime()}
	}
	return s.adoptEnd(ctx, b, why)
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

// bootTime is when the machine was started.
func bootTime() time.Time {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return time.Time{}
	}
	return time.Now().Add(-time.Duration(t.Nano()))
}

func (s *Service) published(id cube.ImageID) bool {
	_, err := s.images.Image(id)
	return id != "" && !errors.Is(err, cube.ErrNotFound)
}

func (s *Service) adoptRunning(ctx context.Context, b *box, sb cube.Sandbox) error {
	r := b.rec
	if r.Generation == sb.Generation && r.Image == "" {
		return nil
	}
	// The engine gave it another life by itself.
	r.Generation, r.Image, r.ChangedAt = sb.Generation, "", time.Now()
	b.set(r)
	return s.apply(ctx, cube.Batch{Sandboxes: []cube.Record{r}})
}

func (s *Service) adoptEnd(ctx context.Context, b *box, why cube.Death) error {
	s.bury(ctx, b.id)
	if end := b.rec.EndAt; b.rec.OnTimeout == cube.OnTimeoutKill && !end.IsZero() && end.Before(time.Now()) {
		why = cube.Death{Reason: cube.DeathTimeout, Detail: why.Detail, At: end}
	}
	last, way := s.testament(b.rec, why)
	s.log.Warn("a sandbox has ended", "sandbox", b.id, "phase", b.rec.Phase, "reason", why.Reason, "detail", why.Detail, "recovery", way)
	return s.finish(ctx, b, &work{}, false, last)
}

// buryUnknown ends what the engine has and no record names.
func (s *Service) buryUnknown(ctx context.Context) error {
	live, err := s.engine.Sandboxes(ctx)
	if err != nil {
		return err
	}
	for _, sb := range live {
		if _, err := s.find(sb.ID); err != nil {
			s.log.Warn("a sandbox without a record is ended", "sandbox", sb.ID)
			s.bury(ctx, sb.ID)
		}
	}
	return nil
}

// adoptSnapshots forgets snapshots whose files are gone.
func (s *Service) adoptSnapshots(ctx context.Context) error {
	for id, snap := range s.snapshots {
		if s.published(id) || s.hidden[id] {
			continue
		}
		if snap.State == cube.SnapshotReady {
			s.log.Warn("a snapshot's files are gone", "image", id, "sandbox", snap.Source)
		}
		s.deleteImage(id, snap.Source)
		s.forgetImage(id)
		b := s.giveUp(snap.Source)
		b.DropSnapshots = []cube.ImageID{id}
		if err := s.apply(ctx, b); err != nil {
			return err
		}
	}
	return nil
}

// takeInAll makes snapshots that no record names known: nothing is to be lost.
func (s *Service) takeInAll() {
	images, err := s.images.Images()
	if err != nil {
		s.log.Warn("not every image can be read", "error", err)
	}
	for _, im := range images {
		_, recorded := s.snapshots[im.ID]
		switch {
		case recorded || im.Kind == cube.KindTemplate:
		case im.Kind == cube.KindSnapshot:
			s.takeIn(im)
		case !s.stray(im) && s.boxes[im.Source] == nil:
			s.log.Warn("an image belongs to no sandbox that is known; it stays", "image", im.ID, "sandbox", im.Source)
		}
	}
}

func (s *Service) takeIn(im cube.Image) {
	s.log.Warn("a snapshot without a record is taken in", "image", im.ID, "sandbox", im.Source)
	snap := cube.Snapshot{
		ID: im.ID, Source: im.Source, State: cube.SnapshotReady, CreatedAt: im.Created, Limits: im.Limits, Bytes: im.Bytes,
	}
	if err := s.apply(s.ctx, cube.Batch{Snapshots: []cube.Snapshot{snap}}); err != nil {
		s.log.Error("a snapshot could not be taken in", "image", im.ID, "error", err)
		return
	}
	s.know(snap)
}
