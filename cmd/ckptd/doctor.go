package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/badger"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/engine/upkeep"
)

var (
	// errSalvaged: the salvaged store lacks something.
	errSalvaged = errors.New("something is missing or damaged")
	// errUndamaged: there is no loss to accept.
	errUndamaged = errors.New("no commits are missing")
)

func (a *app) doctorCmd() *cobra.Command {
	var repair, acceptLoss, yes bool
	var salvage string
	cmd := &cobra.Command{
		Use:   "doctor [DIR]",
		Short: "Diagnose and repair the directory of a store",
		Long: `Doctor examines the directory of a store (DIR or --data). It reports the content, the damage, and the effect of
opening the store. It changes nothing, needs no keys, and does not touch a store in use. If the store would not
open, the exit code is that of opening it. On request, doctor also acts:

  --repair          repair damage that has a second copy; opening the store repairs most of it, too
  --accept-loss     continue without missing commits; the old directory is kept next to it, as DIR.lost-TIME
  --salvage NEWDIR  write everything readable to a new store, verify every checkpoint in it, and list the
                    missing data; DIR is not changed, and NEWDIR has the keys of DIR`,
		Args: cobra.MaximumNArgs(1),
		PersistentPreRunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				a.data = args[0]
			}
			return cmd.Root().PersistentPreRunE(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.server.addr != "" {
				return usagef("doctor works on a directory: omit --server")
			}
			if repair && acceptLoss || (repair || acceptLoss) && salvage != "" {
				return usagef("choose one of --repair, --accept-loss and --salvage")
			}
			switch {
			case repair:
				return a.repair()
			case acceptLoss:
				return a.acceptLoss(yes)
			case salvage != "":
				return a.salvage(cmd.Context(), salvage)
			}
			return a.diagnose()
		},
	}
	f := cmd.Flags()
	f.BoolVar(&repair, "repair", false, "repair damage that has a second copy")
	f.BoolVar(&acceptLoss, "accept-loss", false, "continue without the missing commits")
	f.StringVar(&salvage, "salvage", "", "write everything readable to a new store in `NEWDIR`")
	f.BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	return cmd
}

// diagnosisView is a diagnosis as --json prints it.
type diagnosisView struct {
	Directory   string     `json:"directory"`
	Store       string     `json:"store"`
	Format      int        `json:"format"`
	Tables      partView   `json:"tables"`
	Memory      partView   `json:"memory"`
	Log         partView   `json:"log"`
	Anchor      *placeView `json:"anchor"` // null: damaged or missing
	Stands      *placeView `json:"stands"`
	Replay      int        `json:"replay"`
	Interrupted bool       `json:"interrupted"`
	Unfinished  bool       `json:"unfinished"`
	Opening     string     `json:"opening"` // open, replay, repair or refuse
	Repairs     []string   `json:"repairs"`
	Damage      []string   `json:"damage"`
	Lost        *lostView  `json:"lost"`
}

type partView struct {
	Files int    `json:"files"`
	Bytes int64  `json:"bytes"`
	Group uint64 `json:"group"`
}

type placeView struct {
	Group uint64     `json:"group"`
	Time  *time.Time `json:"time,omitempty"`
}

type lostView struct {
	Groups uint64     `json:"groups"` // 0: unknown
	From   uint64     `json:"from,omitempty"`
	Since  *time.Time `json:"since,omitempty"`
	Why    string     `json:"why"`
}

func placeOf(n uint64, ms int64) *placeView {
	v := &placeView{Group: n}
	if n > 0 {
		t := time.UnixMilli(ms).UTC()
		v.Time = &t
	}
	return v
}

func lossOf(l *badger.Loss) *lostView {
	if l == nil {
		return nil
	}
	v := &lostView{Groups: l.Groups, Why: printable(l.Why)}
	if l.Groups > 0 {
		v.From = l.After.N + 1
	}
	if t := l.Since(); !t.IsZero() {
		v.Since = &t
	}
	return v
}

func (a *app) diagnose() error {
	d, err := badger.Diagnose(a.data, a.backend)
	if err != nil {
		return err
	}
	v := diagnosisView{Directory: a.data, Store: hex.EncodeToString(d.Store[:]), Format: d.Format,
		Tables: partView(d.Tables), Memory: partView(d.Memory), Log: partView(d.Log), Stands: placeOf(d.Stands.N, d.Stands.Time),
		Replay: d.Replay, Interrupted: d.Interrupted, Unfinished: d.Unfinished, Opening: string(d.Outcome), Repairs: append([]string{}, d.Repairs...),
		Damage: append([]string{}, d.Damage...), Lost: lossOf(d.Lost)}
	if d.AnchorWhole {
		v.Anchor = placeOf(d.Anchor.N, d.Anchor.Time)
	}
	if a.json {
		err = a.emit(v)
	} else {
		err = a.diagnosed(v)
	}
	if err == nil && d.Err != nil {
		err = diagnosedError{a.data, d.Err}
	}
	return err
}

// diagnosedError is the error for a store that would not open. What is wrong was said, and what to
// do.
type diagnosedError struct {
	dir string
	why error
}

func (e diagnosedError) Error() string {
	return fmt.Sprintf("%s would not open: %v", e.dir, e.class())
}

// class is the kind of the error, without what was said of the files.
func (e diagnosedError) class() error {
	for _, is := range []error{backend.ErrLostCommits, backend.ErrNoLog, backend.ErrForeignLog, backend.ErrCorrupt} {
		if errors.Is(e.why, is) {
			return is
		}
	}
	return e.why
}

func (a *app) diagnosed(v diagnosisView) error {
	a.printf("%s: store %s, format %d\n", printable(v.Directory), v.Store, v.Format)
	for _, p := range []struct {
		name, files string
		partView
	}{{"tables", "file", v.Tables}, {"memory", "file", v.Memory}, {"log", "segment", v.Log}} {
		line := fmt.Sprintf("  %-8s%s, %s", p.name, count(p.Files, p.files), size(p.Bytes))
		if p.Group > 0 {
			line += fmt.Sprintf(", up to group %d", p.Group)
		}
		a.printf("%s\n", line)
	}
	anchor := "damaged or missing"
	if v.Anchor != nil {
		anchor = placeText(v.Anchor)
	}
	a.printf("  %-8s%s\n", "anchor", anchor)
	a.printf("  %-8s%s\n", "keys", "not examined; ckptd verify checks that the keystore has the keys of every user")
	if v.Interrupted {
		a.printf("  an opening was interrupted, and would start again\n")
	}
	if v.Unfinished {
		a.printf("  the log ends with a part of a group: it was in progress, and never acknowledged\n")
	}
	for _, s := range v.Repairs {
		a.printf("  %s %s\n", a.paint.with("33", "to repair:"), printable(s))
	}
	for _, s := range v.Damage {
		a.printf("  %s %s\n", a.paint.with("31", "damaged:"), printable(s))
	}
	return a.printf("%s\n", verdict(v))
}

func placeText(g *placeView) string {
	if g.Group == 0 {
		return "no group yet"
	}
	return fmt.Sprintf("group %d of %s", g.Group, g.Time.Format(time.RFC3339))
}

// verdict states the effect of opening the store, and the loss.
func verdict(v diagnosisView) string {
	switch badger.Outcome(v.Opening) {
	case badger.OpensNot:
		switch {
		case v.Lost == nil && len(v.Repairs) > 0 && len(v.Damage) == 0:
			return "the store would not open; ckptd doctor --repair repairs it, and nothing is lost"
		case v.Lost == nil:
			return "the store would not open; restore a copy, or save the readable data with ckptd doctor --salvage NEWDIR"
		case v.Lost.Groups == 0:
			return fmt.Sprintf("the store would not open, and the loss after %s is unknown; restore a copy, "+
				"or continue from there with ckptd doctor --accept-loss", placeText(v.Stands))
		}
		return fmt.Sprintf("the store would not open: %s lost after %s; restore a copy, "+
			"or continue without them with ckptd doctor --accept-loss", plural(int(v.Lost.Groups), "group of commits is", "groups of commits are"), placeText(v.Stands))
	case badger.OpensRepairs:
		return fmt.Sprintf("opening the store repairs that; nothing is lost, up to %s", placeText(v.Stands))
	case badger.OpensReplays:
		return fmt.Sprintf("the store was not closed: opening it writes %s of the log to tables; nothing is lost, up to %s",
			count(v.Replay, "group"), placeText(v.Stands))
	}
	if v.Stands.Group == 0 {
		return "the store opens without changes; nothing is missing"
	}
	return "the store opens without changes; nothing is missing, up to " + placeText(v.Stands)
}

func (a *app) repair() error {
	repaired, err := badger.Repair(a.data, a.backend)
	if err != nil {
		return err
	}
	if a.json {
		return a.emit(struct {
			Directory string   `json:"directory"`
			Repaired  []string `json:"repaired"`
		}{a.data, append([]string{}, repaired...)})
	}
	for _, m := range repaired {
		a.printf("repaired: %s\n", printable(m))
	}
	if len(repaired) == 0 {
		a.printf("nothing needed repair\n")
	}
	return nil
}

func (a *app) acceptLoss(yes bool) error {
	d, err := badger.Diagnose(a.data, a.backend)
	if err != nil {
		return err
	}
	if d.Err != nil && d.Lost == nil {
		return fmt.Errorf("this is not a loss of commits: %w", d.Err)
	}
	if d.Lost == nil {
		return fmt.Errorf("%w in %s: there is nothing to accept", errUndamaged, a.data)
	}
	loss := "continue without everything after " + placeText(placeOf(d.Stands.N, d.Stands.Time))
	if d.Lost.Groups > 0 {
		loss = "continue without " + d.Lost.String()
	}
	if err := a.confirm(yes, loss); err != nil {
		return err
	}
	r, err := badger.AcceptLoss(a.data, a.backend)
	if err != nil {
		return err
	}
	if a.json {
		return a.emit(struct {
			Directory   string    `json:"directory"`
			Lost        *lostView `json:"lost"`
			Evidence    string    `json:"evidence"`
			Incarnation string    `json:"incarnation"`
			Group       uint64    `json:"group"`
		}{a.data, lossOf(r.Lost), r.Evidence, hex.EncodeToString(r.Now.Incarnation[:]), r.Now.N})
	}
	a.printf("lost: %s\n", printable(r.Lost.String()))
	return a.printf("%s continues after %s; the old files are in %s\n", printable(a.data), placeText(placeOf(r.Now.N, r.Now.Time)), printable(r.Evidence))
}

// salvageView is the report as --json prints it.
type salvageView struct {
	Directory string     `json:"directory"`
	Missing   []string   `json:"missing"` // what could not be read
	Lost      *lostView  `json:"lost"`
	Verified  verifyView `json:"verified"`
}

func (a *app) salvage(ctx context.Context, to string) error {
	if inside(to, a.data) {
		return usagef("--salvage %s: it is in %s", to, a.data)
	}
	if fresh, err := missingOrEmpty(to); err != nil {
		return err
	} else if !fresh {
		return fmt.Errorf("%s %w", to, errExists)
	}
	// Keys first: without them nothing can be verified.
	o := engine.Options{CacheBytes: a.cacheBytes, Migrations: a.migrations.find}
	var err error
	if o.Root, _, _, err = a.rootKey(ctx, nil, false); err == nil {
		o.Keystore, err = a.keystore(ctx, nil, false)
	}
	if err != nil {
		return err
	}
	r, err := badger.Salvage(a.data, to, a.backend)
	if errors.Is(err, backend.ErrInvalid) { // it cannot go there
		return usagef("%s", strings.Replace(err.Error(), backend.ErrInvalid.Error()+": ", "", 1))
	}
	if err != nil {
		return err
	}
	if !a.json {
		for _, m := range r.Missing {
			a.printf("%s %s\n", a.paint.with("31", "missing:"), printable(m))
		}
	}
	report, err := a.verifySalvaged(ctx, to, o)
	if err != nil {
		return err
	}
	v := salvageView{Directory: to, Missing: r.Missing, Lost: lossOf(r.Lost), Verified: report}
	if a.json {
		err = a.emit(v)
	} else {
		err = a.salvaged(v)
	}
	if err == nil && (len(v.Missing)+len(report.Problems) > 0 || v.Lost != nil) {
		err = fmt.Errorf("salvaged to %s: %w", to, errSalvaged)
	}
	return err
}

func (a *app) verifySalvaged(ctx context.Context, dir string, o engine.Options) (v verifyView, err error) {
	be, err := badger.Open(dir, a.backend)
	if err != nil {
		return v, err
	}
	s, err := engine.Open(ctx, be, o)
	if err != nil {
		err = errors.Join(err, be.Close())
		if ctx.Err() == nil { // so it is useless
			err = errors.Join(err, os.RemoveAll(dir))
		}
		if errors.Is(err, engine.ErrCorrupt) {
			err = fmt.Errorf("%w, so the salvaged store does not open: %v", errSalvaged, err)
		}
		return v, fmt.Errorf("opening the salvaged store: %w", err)
	}
	bar := newProgress(-1, "verifying", false)
	start := time.Now()
	r, err := s.Upkeep().Verify(ctx, upkeep.VerifyOptions{Deep: true, Progress: func(done, total int) { bar.set(int64(done), int64(total)) }})
	bar.end()
	if err = errors.Join(err, s.Close()); err != nil {
		return v, err
	}
	return viewOfReport(r, true, time.Since(start)), nil
}

func (a *app) salvaged(v salvageView) error {
	if v.Lost != nil {
		a.printf("%s %s\n", a.paint.with("31", "missing:"), v.Lost.Why)
	}
	if err := a.verified(v.Verified); err != nil {
		return err
	}
	return a.printf("salvaged to %s, which has the keys of %s: name them with --key-file %s and --keystore %s, or move it to %s\n",
		printable(v.Directory), printable(a.data), printable(a.keyFile), printable(a.keysDir), printable(a.data))
}
