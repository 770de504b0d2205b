package main

import (
	"fmt"
	"strings"
)

// greet prints the next steps for a user at a terminal.
func (a *app) greet(r *running, o *serveOptions) error {
	var b strings.Builder
	fmt.Fprintf(&b, "ckptd serves %s\n", a.data)
	base := ""
	for _, l := range r.listeners {
		switch addr := l.Addr(); {
		case addr.Network() == "unix":
			fmt.Fprintf(&b, "  socket  unix:%s\n", addr)
			base = "--unix-socket " + shellQuote(addr.String()) + " http://ckptd"
		case l.tls:
			fmt.Fprintf(&b, "  address https://%s\n", addr)
		default:
			fmt.Fprintf(&b, "  address http://%s\n", addr)
			if base == "" {
				base = "http://" + addr.String()
			}
		}
	}
	auth := ""
	if r.firstToken != "" {
		fmt.Fprintf(&b, "  token   in %s: a writer for user %s of tenant %s\n", r.firstToken, printable(a.user), printable(a.tenant))
		auth = ` -H "Authorization: Bearer $(cat ` + shellQuote(r.firstToken) + `)"`
	}
	if base != "" {
		ref := fmt.Sprintf(`"tenant":%q,"user":%q,"thread":"hello"`, a.tenant, a.user)
		if auth != "" {
			ref = `"thread":"hello"` // the token says the rest
		}
		fmt.Fprintf(&b, "\nSave a checkpoint, and load it:\n")
		for _, example := range [][2]string{{"Save", `{"ref":{` + ref + `},"draft":{"channels":[{"name":"state","type":"json","text":"{\"messages\":[\"hi\"]}"}]}}`},
			{"Load", `{"ref":{` + ref + `},"text":true}`}} {
			fmt.Fprintf(&b, "  curl %s/ckptd.v1.CheckpointService/%s%s -H 'Content-Type: application/json' -d %s\n", base, example[0], auth, shellQuote(example[1]))
		}
	}
	a.printf("%s\n", strings.TrimRight(b.String(), "\n"))
	return wroteOut(a.out.Flush())
}

// shellQuote quotes a text for a shell, if it must be.
func shellQuote(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-:@%+=,", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
