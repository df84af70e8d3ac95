package differential

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	cube "cubesandbox"
	"cubesandbox/client"
	"cubesandbox/e2e/differential/guestapi"
	"cubesandbox/e2e/lab"
)

// box is a sandbox in which the guest runs.
type box struct {
	role string
	id   cube.SandboxID
}

const guestPath = "/root/guest"

// askTime bounds one command.
const askTime = 3 * time.Minute

// cold boots a sandbox whose kernel comes from no image, and starts the guest in it:
// one of the template, which comes from an image, is paused without its memory.
func cold(ctx context.Context, role string) (_ *box, err error) {
	sb, err := s.API.Create(ctx, client.NewSandbox{Template: "base", Timeout: cube.NeverTimeout})
	if err != nil {
		return nil, err
	}
	b := &box{role, sb.ID}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("boot %s: %w", role, err), b.kill(context.WithoutCancel(ctx)))
		}
	}()
	g, err := s.API.Guest(sb.ID, sb.AccessToken)
	if err != nil {
		return nil, err
	}
	if err := g.WriteFile(ctx, "root", guestPath, bytes.NewReader(program)); err != nil {
		return nil, err
	}
	if err := s.API.PauseFilesOnly(ctx, sb.ID); err != nil {
		return nil, err
	}
	if sb, err = s.API.Resume(ctx, sb.ID, 0); err != nil {
		return nil, err
	}
	start := fmt.Sprintf("chmod 755 %s && (setsid %[1]s </dev/null >%[1]s.log 2>&1 &)", guestPath)
	if _, err := lab.Shell(ctx, s.API, sb, start); err != nil {
		return nil, err
	}
	return b, lab.Until(20*time.Second, "the guest listens", func() error {
		_, err := b.ask(ctx, guestapi.Request{Do: guestapi.Operations})
		return err
	})
}

// ask gives the guest one command.
func (b *box) ask(ctx context.Context, q guestapi.Request) (a guestapi.Answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	body, err := json.Marshal(q)
	if err != nil {
		return a, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.API.PortURL(b.id, guestapi.Port), bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	r.Close = true // its next life has other connections
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return a, fmt.Errorf("%s, %s: %w", b.role, q.Do, err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return a, fmt.Errorf("%s, %s: status %s", b.role, q.Do, res.Status)
	}
	if err := json.NewDecoder(res.Body).Decode(&a); err != nil {
		return a, fmt.Errorf("%s, %s: %w", b.role, q.Do, err)
	}
	if a.Error != "" {
		return a, fmt.Errorf("%s, %s: %s", b.role, q.Do, a.Error)
	}
	return a, nil
}

func (b *box) kill(ctx context.Context) error {
	if b == nil {
		return nil
	}
	return s.API.Kill(ctx, b.id)
}

// askAll gives each box its own command at the same time.
func askAll(ctx context.Context, boxes []*box, command func(*box) guestapi.Request) ([]guestapi.Answer, error) {
	answers, errs := make([]guestapi.Answer, len(boxes)), make([]error, len(boxes))
	var wg sync.WaitGroup
	for i, b := range boxes {
		wg.Go(func() { answers[i], errs[i] = b.ask(ctx, command(b)) })
	}
	wg.Wait()
	return answers, errors.Join(errs...)
}
