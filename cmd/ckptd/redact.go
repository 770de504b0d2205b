package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/plugins/redact"
)

// errFound is the outcome of redact --check when there is something.
var errFound = errors.New("secrets or personal data found")

func (a *app) redactCmd() *cobra.Command {
	var o redactOptions
	cmd := &cobra.Command{
		Use:   "redact FILE",
		Short: "Redact secrets and personal data in a file",
		Long: `Redact copies FILE, or standard input for -, to standard output with secrets and personal data
replaced, and reports to standard error how often and where each rule matched. It redacts a file just
as the daemon redacts a save, but needs no store. It never shows its findings. It does not find names
of people, street addresses or organisations.

The file name or --type determines the input type: json (one value, or one per line), msgpack or
text. Other input is treated as text if possible, and rejected otherwise.

With --check, redact writes only the summary, to standard output, and exits with code 15 if it finds
anything. The configuration is a TOML or JSON file, described in docs/redaction.md. Its action hash
creates pseudonyms with the key in --pseudonym-key-file, a file with 64 hexadecimal digits; without a
key it masks.`,
		Example: `  ckptd redact session.json --out clean.json
  git diff | ckptd redact --check -`,
		Args: func(cmd *cobra.Command, args []string) error {
			if o.rules {
				return cobra.NoArgs(cmd, args)
			}
			return cobra.ExactArgs(1)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := o.redactor()
			if err != nil {
				return err
			}
			if o.rules {
				return a.showRules(r.Rules())
			}
			return a.redact(cmd.Context(), r, &o, args[0])
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.out, "out", "o", "", "write to `FILE` instead of standard output")
	f.StringVar(&o.kind, "type", "", "input `TYPE`: json, msgpack or text")
	f.StringVar(&o.config, "config", "", "configuration `FILE` with your own rules and actions")
	f.StringVar(&o.keyFile, "pseudonym-key-file", "", "`FILE` with the key for pseudonyms")
	f.BoolVar(&o.check, "check", false, "only report findings, redact nothing")
	f.BoolVar(&o.rules, "rules", false, "list the active rules")
	return cmd
}

type redactOptions struct {
	out, kind, config, keyFile string
	check, rules               bool
}

// redactor returns the Redactor that the options ask for.
func (o *redactOptions) redactor() (*redact.Redactor, error) {
	if o.kind != "" && o.kind != "json" && o.kind != "msgpack" && o.kind != "text" {
		return nil, usagef("--type %q: want json, msgpack or text", o.kind)
	}
	var c redact.Config
	if o.config != "" {
		text, err := os.ReadFile(o.config)
		if err != nil {
			return nil, err
		}
		if c, err = redact.ParseConfig(text); err != nil {
			return nil, fmt.Errorf("%s: %w", o.config, err)
		}
	}
	r, err := redact.New(c)
	if err != nil && o.config != "" {
		return nil, fmt.Errorf("%s: %w", o.config, err)
	}
	return r, err
}

// input reads what to redact.
func (o *redactOptions) input(file string, in io.Reader) (redact.Input, error) {
	it := redact.Input{Type: o.kind}
	var err error
	if o.keyFile != "" {
		if it.PseudonymKey, err = readPseudonymKey(o.keyFile); err != nil {
			return it, err
		}
	}
	if it.Data, err = readInput(file, in); err != nil || it.Type != "" {
		return it, err
	}
	switch strings.ToLower(filepath.Ext(file)) {
	case ".json", ".jsonl", ".ndjson":
		it.Type = "json"
	case ".msgpack", ".mpk":
		it.Type = "msgpack"
	case ".txt", ".md", ".log":
		it.Type = "text"
	default:
		if redact.Opaque(it.Data) {
			return it, &hook.Error{Kind: hook.ErrInvalid, Plugin: "redact", Reason: "the input is not text: set its type with --type"}
		}
	}
	return it, nil
}

// readPseudonymKey reads a key as 64 hexadecimal digits.
func readPseudonymKey(file string) (key [32]byte, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return key, err
	}
	raw, err := hex.DecodeString(string(bytes.TrimSpace(text)))
	if err != nil || len(raw) != len(key) {
		return key, usagef("--pseudonym-key-file %s: want 64 hexadecimal digits", file)
	}
	return [32]byte(raw), nil
}

func (a *app) redact(ctx context.Context, r *redact.Redactor, o *redactOptions, file string) error {
	in, err := o.input(file, a.in)
	if err != nil {
		return err
	}
	out, err := r.Redact(ctx, in)
	if err != nil {
		return err
	}
	if !o.check {
		err = a.to(o.out, func(w io.Writer) error {
			_, err := w.Write(out.Data)
			return wroteOut(err)
		})
		if err != nil {
			return err
		}
	}
	if !o.check {
		return a.showFindings(a.errOut, out.Findings)
	}
	if err := a.showFindings(a.out, out.Findings); err != nil {
		return wroteOut(err)
	}
	if out.Changed {
		return errFound
	}
	return nil
}

// showFindings prints how often each rule matched, and where.
func (a *app) showFindings(w io.Writer, findings []hook.Finding) error {
	views := []findingView{}
	wide := 0
	for _, f := range findings {
		views = append(views, findingView{f.Rule, f.Path, f.Count})
		wide = max(wide, len(f.Rule))
	}
	if a.json {
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		return enc.Encode(map[string]any{"findings": views})
	}
	for _, v := range views {
		if _, err := fmt.Fprintf(w, "%s  %6s  %s\n", pad(v.Rule, wide), strconv.Itoa(v.Count), printable(v.Path)); err != nil {
			return err
		}
	}
	return nil
}

// ruleView is a rule as --json prints it.
type ruleView struct {
	ID     string        `json:"id"`
	Group  string        `json:"group"`
	Action redact.Action `json:"action"`
	About  string        `json:"about,omitempty"`
}

func (a *app) showRules(rules []redact.Rule) error {
	wide := 0
	for _, r := range rules {
		wide = max(wide, len(r.ID))
	}
	for _, r := range rules {
		if a.json {
			if err := a.emit(ruleView{r.ID, r.Group, r.Action, r.About}); err != nil {
				return err
			}
			continue
		}
		if err := a.printf("%s  %s  %s  %s\n", a.paint.bold(pad(r.ID, wide)), pad(r.Group, 8), pad(string(r.Action), 6), printable(r.About)); err != nil {
			return err
		}
	}
	return nil
}
