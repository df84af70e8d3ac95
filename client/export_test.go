package client

import "time"

// Patience sets for how long Run goes on without an answer.
func (g *Guest) Patience(d time.Duration) { g.patience = d }
