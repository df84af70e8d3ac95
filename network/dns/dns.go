// Package dns answers name queries of a guest whose egress is denied: every name,
// of every type, does not exist. At once, because a resolver that hears nothing
// waits for seconds; NXDOMAIN and not REFUSED, because musl's resolver takes the
// latter for a broken server and goes on waiting. The answers carry no SOA record,
// so nobody remembers them.
package dns

import (
	"golang.org/x/net/dns/dnsmessage"
)

const (
	// MaxMessage is the size, in bytes, that no answer exceeds: the header, one
	// question with a name of 255 bytes, and an OPT record.
	MaxMessage = 12 + 255 + 4 + 11

	// ours is the UDP payload size that we announce, in bytes (EDNS).
	ours = 1232

	// maxOthers bounds the records behind the question that are looked through
	// for an OPT record; a query has one, or two with a signature.
	maxOthers = 4
)

// Answer returns the answer to one message, or nil for what deserves none: what
// is too short to have an id, and what is itself an answer.
func Answer(query []byte) []byte {
	var p dnsmessage.Parser
	h, err := p.Start(query)
	if err != nil || h.Response {
		return nil
	}
	out := dnsmessage.Header{
		ID:                 h.ID,
		Response:           true,
		OpCode:             h.OpCode,
		RecursionDesired:   h.RecursionDesired,
		RecursionAvailable: true,
		RCode:              dnsmessage.RCodeNameError,
	}
	if h.OpCode != 0 {
		out.RCode = dnsmessage.RCodeNotImplemented
		return build(out, nil, false)
	}
	q, edns, ok := parse(&p)
	if !ok {
		out.RCode = dnsmessage.RCodeFormatError
		return build(out, nil, false)
	}
	return build(out, &q, edns)
}

// parse returns the only question, and whether the asker speaks EDNS.
func parse(p *dnsmessage.Parser) (q dnsmessage.Question, edns, ok bool) {
	q, err := p.Question()
	if err != nil {
		return q, false, false
	}
	if _, err := p.Question(); err != dnsmessage.ErrSectionDone {
		return q, false, false
	}
	if p.SkipAllAnswers() != nil || p.SkipAllAuthorities() != nil {
		return q, false, false
	}
	for range maxOthers {
		r, err := p.AdditionalHeader()
		if err == dnsmessage.ErrSectionDone {
			return q, edns, true
		}
		if err != nil || p.SkipAdditional() != nil {
			return q, false, false
		}
		edns = edns || r.Type == dnsmessage.TypeOPT
	}
	return q, edns, true
}

// build makes a message; nil when it cannot be one.
func build(h dnsmessage.Header, q *dnsmessage.Question, edns bool) []byte {
	b := dnsmessage.NewBuilder(make([]byte, 0, MaxMessage), h)
	if q != nil {
		if b.StartQuestions() != nil || b.Question(*q) != nil {
			return nil
		}
	}
	if edns {
		var r dnsmessage.ResourceHeader
		if b.StartAdditionals() != nil || r.SetEDNS0(ours, dnsmessage.RCodeSuccess, false) != nil ||
			b.OPTResource(r, dnsmessage.OPTResource{}) != nil {
			return nil
		}
	}
	msg, err := b.Finish()
	if err != nil {
		return nil
	}
	return msg
}
