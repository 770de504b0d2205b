package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// configured reads flags and a configuration file as ckptd serve does.
func configured(t *testing.T, config string, args ...string) (*pflag.FlagSet, *serveOptions, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ckptd.toml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var o serveOptions
	a, f := newApp(), pflag.NewFlagSet("serve", pflag.ContinueOnError)
	a.flags(f)
	o.flags(f)
	if err := f.Parse(append(args, "--config", path)); err != nil {
		t.Fatal(err)
	}
	return f, &o, a.configure(f, &o)
}

// TestServeEveryFlagInTheFile sets every flag in the file, in the words of TOML, and finds it set.
func TestServeEveryFlagInTheFile(t *testing.T) {
	defaults := serveFlags(t)
	others := map[string]string{"listen": `["127.0.0.1:1", "127.0.0.1:2"]`, "socket-mode": `"0660"`, "log-level": `"debug"`, "log-format": `"text"`, "trace-ratio": "0.25",
		"max-message": `"5MiB"`, "in-flight-bytes": `"6MiB"`, "rate": "7.5", "cache": `"8MiB"`, "client-ca": `"x"`, "cert": `"y"`, "cert-key": `"z"`,
		"plugin-isolation": `"none"`, "plugin-memory": `"7MiB"`}
	var text strings.Builder
	var names []string
	defaults.VisitAll(func(f *pflag.Flag) {
		if slices.Contains([]string{"help", "config", "server", "token-file", "tls-ca", "tls-cert", "tls-key", "json", "namespace"}, f.Name) {
			return // about other things than a server and its store
		}
		names = append(names, f.Name)
		if others[f.Name] == "" {
			switch f.Value.Type() {
			case "string":
				others[f.Name] = fmt.Sprintf("%q", "other-"+f.Name)
			case "int":
				others[f.Name] = "77"
			case "bool":
				others[f.Name] = fmt.Sprint(f.DefValue != "true")
			case "duration":
				others[f.Name] = `"1m17s"`
			default:
				t.Fatalf("--%s has a type that there was not before: %s", f.Name, f.Value.Type())
			}
		}
		fmt.Fprintf(&text, "%s = %s\n", f.Name, others[f.Name])
	})
	f, _, err := configured(t, text.String())
	if err != nil {
		t.Fatalf("%v\n%s", err, text.String())
	}
	for _, name := range names {
		want := strings.ReplaceAll(strings.ReplaceAll(others[name], `"`, ""), ", ", ",")
		if got := f.Lookup(name).Value.String(); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

// TestServePrecedence says the same thing in several places: the command line outweighs the
// environment, and that the file.
func TestServePrecedence(t *testing.T) {
	t.Setenv("CKPTD_IN_FLIGHT", "2")
	t.Setenv("CKPTD_BURST", "2")
	f, o, err := configured(t, "in-flight = 3\nburst = 3\nwatches = 3\n", "--in-flight", "1")
	if err != nil {
		t.Fatal(err)
	}
	if l := o.limits; l.InFlight != 1 || l.Burst != 2 || l.Streams != 3 {
		t.Errorf("in-flight is %d, burst %d, watches %d, want 1, 2, 3", l.InFlight, l.Burst, l.Streams)
	}
	if f.Lookup("connections").Changed {
		t.Error("what nobody says has changed")
	}
}

// TestServeRefusesConfiguration reads files in which something is wrong, which the error names.
func TestServeRefusesConfiguration(t *testing.T) {
	for text, want := range map[string]string{
		"in-flihgt = 5":                          `unknown key "in-flihgt"`,
		"[jwt]\nisuer = \"x\"":                   `unknown key "jwt.isuer"`,
		"[[peer]]\nuid = 0\nroot = true":         `unknown key "peer.root"`,
		"[limits]\nrate = 5":                     `"limits"`,
		"config = \"x\"":                         `unknown key "config"`,
		"help = true":                            `unknown key "help"`,
		"in-flight = \"many\"":                   "in-flight",
		"in-flight = [1]":                        "in-flight",
		"request-timeout = 30":                   "request-timeout",
		"max-message = \"lots\"":                 "max-message",
		"max-message = \"0\"":                    "max-message",
		"trace-ratio = 2":                        "trace-ratio",
		"listen = [":                             "line 1",
		"rate = 1\nrate = 2":                     "line 2",
		"cert = \"x\"":                           "--cert-key",
		"client-ca = \"x\"":                      "--client-ca",
		"tokens = \"none\"":                      "--tokens",
		"rate = 1\n\n\n[[peer]]\nuid = \"root\"": "line 5",
		"rate = 1\n[[peer]]\nuid = 1\nx = 1":     `unknown key "peer.x"`,
		"[[peer]]\nuid = \"root\"":               "line 2",
		"[[peer]]\n[[peer.grant]]\nrole = 5":     "line",
		"owner-is-admin = \"no\"":                "line 1",
	} {
		_, _, err := configured(t, text)
		if err == nil {
			t.Errorf("%q is accepted", text)
			continue
		}
		if code, line := explain(err); code != exitUsage || !strings.Contains(line, want) {
			t.Errorf("%q is refused with code %d: %s; want %q in it", text, code, line, want)
		}
	}
}
