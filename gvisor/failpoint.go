package gvisor

import "cubesandbox/internal/failpoint"

// The boundaries between the steps of each verb: what has just happened.
var (
	fpCreateBooted    = failpoint.New("engine/create/booted")
	fpCreateRestored  = failpoint.New("engine/create/restored")
	fpCreateFilesSent = failpoint.New("engine/create/files-sent")
	fpCreateLabelled  = failpoint.New("engine/create/labelled")

	fpSaveSaved     = failpoint.New("engine/save/saved")
	fpSavePublished = failpoint.New("engine/save/published")

	fpPauseFrozen    = failpoint.New("engine/pause/frozen")
	fpPauseLabelled  = failpoint.New("engine/pause/labelled")
	fpPauseSaved     = failpoint.New("engine/pause/saved")
	fpPauseFiles     = failpoint.New("engine/pause/files")
	fpPausePublished = failpoint.New("engine/pause/published")
	fpPauseEnded     = failpoint.New("engine/pause/ended")

	fpCloneSaved       = failpoint.New("engine/clone/saved")
	fpCloneRestoredAll = failpoint.New("engine/clone/restored-all")
	fpCloneLabelledOne = failpoint.New("engine/clone/labelled-one")
	fpCloneLabelledAll = failpoint.New("engine/clone/labelled-all")

	fpRollbackFrozen   = failpoint.New("engine/rollback/frozen")
	fpRollbackRestored = failpoint.New("engine/rollback/restored")
	fpRollbackLabelled = failpoint.New("engine/rollback/labelled")
	fpRollbackSwitched = failpoint.New("engine/rollback/switched")
	fpRollbackBuried   = failpoint.New("engine/rollback/buried")

	fpKillEnded = failpoint.New("engine/kill/ended")
)

// passed is for places behind the point of no return: the verb completes.
func (e *Engine) passed(p *failpoint.Point) {
	if err := p.Hit(); err != nil {
		e.log.Warn("too late to fail", "error", err)
	}
}
