package dns

import (
	"bytes"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

func query(t testing.TB, name string, kind dnsmessage.Type, edns bool) []byte {
	t.Helper()
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: 0xbeef, RecursionDesired: true})
	b.StartQuestions()
	if err := b.Question(dnsmessage.Question{Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET}); err != nil {
		t.Fatal(err)
	}
	if edns {
		var h dnsmessage.ResourceHeader
		h.SetEDNS0(4096, dnsmessage.RCodeSuccess, false)
		b.StartAdditionals()
		b.OPTResource(h, dnsmessage.OPTResource{})
	}
	msg, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return msg
}

func TestEveryNameOfEveryTypeDoesNotExist(t *testing.T) {
	for _, kind := range []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeAAAA, dnsmessage.TypeTXT, dnsmessage.TypePTR, 65, 255} {
		for _, edns := range []bool{false, true} {
			var m dnsmessage.Message
			if err := m.Unpack(Answer(query(t, "metadata.google.internal.", kind, edns))); err != nil {
				t.Fatalf("type %v: %v", kind, err)
			}
			if m.RCode != dnsmessage.RCodeNameError || m.ID != 0xbeef || !m.Response || !m.RecursionDesired {
				t.Errorf("type %v: got header %+v, want NXDOMAIN to 0xbeef", kind, m.Header)
			}
			if len(m.Questions) != 1 || m.Questions[0].Type != kind || m.Questions[0].Name.String() != "metadata.google.internal." {
				t.Errorf("type %v: got questions %v", kind, m.Questions)
			}
			if len(m.Answers)+len(m.Authorities) != 0 || len(m.Additionals) == 1 != edns {
				t.Errorf("type %v, EDNS %v: got %d answers, %d authorities, %d additionals", kind, edns, len(m.Answers), len(m.Authorities), len(m.Additionals))
			}
		}
	}
}

func TestWhatIsNoQueryGetsNoNXDOMAIN(t *testing.T) {
	good := query(t, "a.", dnsmessage.TypeA, false)
	change := func(f func(b []byte) []byte) []byte { return f(bytes.Clone(good)) }
	for name, c := range map[string]struct {
		query []byte
		code  dnsmessage.RCode // -: no answer
		none  bool
	}{
		"empty":          {query: nil, none: true},
		"short header":   {query: good[:11], none: true},
		"an answer":      {query: change(func(b []byte) []byte { b[2] |= 0x80; return b }), none: true},
		"no question":    {query: change(func(b []byte) []byte { b[5] = 0; return b[:12] }), code: dnsmessage.RCodeFormatError},
		"two questions":  {query: change(func(b []byte) []byte { b[5] = 2; return append(b, b[12:]...) }), code: dnsmessage.RCodeFormatError},
		"cut question":   {query: good[:14], code: dnsmessage.RCodeFormatError},
		"pointer loop":   {query: change(func(b []byte) []byte { b[12], b[13] = 0xc0, 12; return b }), code: dnsmessage.RCodeFormatError},
		"counts lie":     {query: change(func(b []byte) []byte { b[7] = 255; return b }), code: dnsmessage.RCodeFormatError},
		"a status query": {query: change(func(b []byte) []byte { b[2] |= 2 << 3; return b }), code: dnsmessage.RCodeNotImplemented},
	} {
		t.Run(name, func(t *testing.T) {
			a := Answer(c.query)
			if c.none {
				if a != nil {
					t.Errorf("got %x, want no answer", a)
				}
				return
			}
			var m dnsmessage.Message
			if err := m.Unpack(a); err != nil || m.RCode != c.code {
				t.Errorf("got %v, %v, want %v", m.RCode, err, c.code)
			}
		})
	}
}

func TestLongestNameFits(t *testing.T) {
	label := bytes.Repeat([]byte("x"), 63)
	name := string(bytes.Join([][]byte{label, label, label, label[:61]}, []byte("."))) + "."
	if a := Answer(query(t, name, dnsmessage.TypeA, true)); len(a) == 0 || len(a) > MaxMessage {
		t.Errorf("got an answer of %d bytes, want 1 to %d", len(a), MaxMessage)
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add(query(f, "example.com.", dnsmessage.TypeAAAA, true))
	f.Add(query(f, "a.b.c.", dnsmessage.TypeMX, false))
	f.Add([]byte{0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xc0, 12, 0, 1, 0, 1})
	f.Fuzz(func(t *testing.T, q []byte) {
		a := Answer(q)
		if a == nil {
			return
		}
		if len(a) > MaxMessage {
			t.Fatalf("answer of %d bytes, limit %d", len(a), MaxMessage)
		}
		var m dnsmessage.Message
		if err := m.Unpack(a); err != nil {
			t.Fatalf("answer cannot be read: %v", err)
		}
		if !m.Response || m.RCode == dnsmessage.RCodeSuccess || m.RCode == dnsmessage.RCodeRefused || len(m.Answers) != 0 {
			t.Fatalf("got %+v", m)
		}
		if !bytes.Equal(a[:2], q[:2]) {
			t.Fatalf("answer to %x, question was %x", a[:2], q[:2])
		}
	})
}
