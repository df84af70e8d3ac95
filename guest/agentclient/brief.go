package agentclient

import (
	"strings"
	"unicode"
)

// maxText bounds what an error says, in bytes: it may quote an agent, and goes into logs
// and answers.
const maxText = 600

// brief bounds the text of an error and makes it one harmless line. What it wraps stays.
func brief(err error) error {
	if err == nil {
		return nil
	}
	text := harmless(err.Error())
	if text == err.Error() {
		return err
	}
	return &shortened{text, err}
}

type shortened struct {
	text string
	err  error
}

func (s *shortened) Error() string { return s.text }

func (s *shortened) Unwrap() error { return s.err }

// harmless is the beginning of a text, with a mark for what a terminal or a log might
// take for something else.
func harmless(text string) string {
	cut := len(text) > maxText
	if cut {
		text = text[:maxText]
	}
	text = strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t':
			return ' '
		case r == unicode.ReplacementChar, !unicode.IsGraphic(r):
			return '?'
		}
		return r
	}, text)
	if cut {
		text += "…"
	}
	return text
}
