package service

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	cube "cubesandbox"
)

// longestKey bounds an idempotency key, in bytes.
const longestKey = 255

// once carries a request out that has a key, or answers it as it was answered before.
// do gets the key and the digest of the request for its plan; what it has made, it
// must record together with an Answer. Requests with one key wait for each other.
func (s *Service) once(ctx context.Context, key string, verb cube.Verb, request any, do func(cube.Plan) error, again func(cube.Answer) error) error {
	if key == "" {
		return do(newPlan(verb, ""))
	}
	if len(key) > longestKey {
		return fmt.Errorf("idempotency key of %d bytes: want up to %d: %w", len(key), longestKey, cube.ErrInvalid)
	}
	digest, err := digestOf(verb, request)
	if err != nil {
		return err
	}
	for {
		a, wait := s.ask(key)
		switch {
		case a != nil && a.Request != digest:
			return fmt.Errorf("%s: key %q: %w; use a new key for a new request", verb, key, cube.ErrKeyReused)
		case a != nil:
			return again(*a)
		case wait == nil:
			defer s.asked(key)
			p := newPlan(verb, "")
			p.Key, p.Request = key, digest
			return do(p)
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func digestOf(verb cube.Verb, request any) (string, error) {
	b, err := json.Marshal(request)
	if err != nil {
		return "", fmt.Errorf("%s: %w: %w", verb, cube.ErrInvalid, err)
	}
	// What was not said does not count: a newer version may know more of it.
	var said any
	if err := json.Unmarshal(b, &said); err != nil {
		return "", err
	}
	if b, err = json.Marshal(dense(said)); err != nil {
		return "", err
	}
	sum := sha256.Sum256(append([]byte(verb+" "), b...))
	return hex.EncodeToString(sum[:]), nil
}

// dense is a JSON value without the fields of its objects that are zero; what these
// hold is a client's own and stays.
func dense(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = dense(v[i])
		}
	case map[string]any:
		for k, x := range v {
			switch x {
			case nil, "", false, 0.0:
				delete(v, k)
			}
		}
	}
	return v
}

// ask returns the answer of a key, or what to wait for; or neither, and the key is
// the caller's until asked.
func (s *Service) ask(key string) (*cube.Answer, chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a, ok := s.answers[key]; ok {
		return &a, nil
	}
	if wait, ok := s.asking[key]; ok {
		return nil, wait
	}
	s.asking[key] = make(chan struct{})
	return nil, nil
}

func (s *Service) asked(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.asking[key])
	delete(s.asking, key)
}

// answered makes the answer to a plan's key part of the batch that ends the plan.
func (w *work) answered(b cube.Batch, a cube.Answer) cube.Batch {
	if w.Key != "" {
		a.Key, a.Request, a.At = w.Key, w.Request, time.Now()
		b.Answers = append(b.Answers, a)
	}
	return w.end(b)
}

// unanswered ends a plan that was taken back. Its answer, which may be on disk, goes
// too; another try with the key may have one of its own.
func (s *Service) unanswered(w *work, b cube.Batch) cube.Batch {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if a, ok := s.answers[w.Key]; ok && w.Key != "" {
		own := w.Image != "" && a.Image == w.Image
		for _, id := range append(slices.Clone(w.Made), w.Sandbox) {
			own = own || slices.Contains(a.Sandboxes, id)
		}
		if own {
			b.DropAnswers = append(b.DropAnswers, w.Key)
		}
	}
	return w.end(b)
}

// keysOf are the keys that are answered with an image.
func (s *Service) keysOf(id cube.ImageID) (keys []string) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for key, a := range s.answers {
		if a.Image == id {
			keys = append(keys, key)
		}
	}
	return keys
}

// forgetAnswers drops those that are older than what is kept of ended sandboxes.
func (s *Service) forgetAnswers() {
	before := time.Now().Add(-s.conf.Keep)
	var old []string
	s.mu.Lock()
	for k, a := range s.answers {
		if a.At.Before(before) {
			old = append(old, k)
			delete(s.answers, k)
		}
	}
	s.mu.Unlock()
	if len(old) == 0 {
		return
	}
	if err := s.apply(s.ctx, cube.Batch{DropAnswers: old}); err != nil {
		s.log.Warn("old answers could not be forgotten", "error", err)
	}
}
