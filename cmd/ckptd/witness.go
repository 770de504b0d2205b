package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/engine/upkeep"
	"github.com/ckptd/ckptd/internal/durable"
)

// errWitness: the progress of a store contradicts its witness.
var errWitness = errors.New("the directory was replaced by an older copy, or by one with a different past")

const mostWitness = 64 << 10 // bytes of a file

// witness is the progress of a store when it was last verified, as stored in the file of --witness.
type witness struct {
	Version     int       `json:"ckptd_witness"` // 1
	Store       string    `json:"store"`
	Incarnation string    `json:"incarnation"`
	Group       uint64    `json:"group"`
	Time        time.Time `json:"time"`
	Hash        string    `json:"hash"`
}

func witnessOf(p backend.Position) witness {
	return witness{1, hex.EncodeToString(p.Store[:]), hex.EncodeToString(p.Incarnation[:]), p.N, p.Time, hex.EncodeToString(p.Hash[:])}
}

// readWitness reads the last witness, nil if there is no file.
func readWitness(path string) (*witness, error) {
	b, err := durable.ReadFile(path, mostWitness)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var w witness
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&w); err != nil || w.Version != 1 || len(bytes.TrimSpace(b[d.InputOffset():])) > 0 {
		return nil, fmt.Errorf("%w: %s was not written by verify --witness", engine.ErrInvalid, path)
	}
	return &w, nil
}

// accepts reports whether a store can have gone from w to now.
func (w *witness) accepts(path string, now witness) error {
	was := fmt.Sprintf("%s saw group %d of %s", path, w.Group, w.Time.Format(time.RFC3339))
	switch {
	case w.Store != now.Store:
		return fmt.Errorf("%w: %s is the witness of another store", engine.ErrInvalid, path)
	case w.Group == 0: // of an empty store
		return nil
	case w.Incarnation != now.Incarnation:
		return fmt.Errorf("%w: %s, and a loss was accepted since then, at group %d", errWitness, was, now.Group)
	case now.Group < w.Group:
		return fmt.Errorf("%w: %s, and the store is at group %d of %s", errWitness, was, now.Group, now.Time.Format(time.RFC3339))
	case now.Group == w.Group && now.Hash != w.Hash:
		return fmt.Errorf("%w: %s, but the store has other commits there", errWitness, was)
	}
	return nil
}

// witnessed compares a store with its witness, verifies it, and then updates the witness.
func (a *app) witnessed(ctx context.Context, path string, s store, o upkeep.VerifyOptions) error {
	p, err := a.positioner.Position(ctx)
	if err != nil {
		return err
	}
	now := witnessOf(p)
	seen, err := readWitness(path)
	if err == nil && seen != nil {
		err = seen.accepts(path, now)
	}
	if err != nil {
		return err
	}
	if err := a.verify(ctx, s, o); err != nil {
		return err
	}
	b, err := json.Marshal(now)
	if err != nil {
		return err
	}
	if err := durable.WriteFile(path, append(b, '\n')); err != nil {
		return err
	}
	if seen == nil {
		a.note("there was no witness in %s: it was created", path)
	}
	return nil
}
