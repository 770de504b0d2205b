package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ckptd/ckptd/engine"
)

// leastPrefix is how many characters of an id name it.
const leastPrefix = 8

// find returns the header of the checkpoint that the command line names; "" is the head.
func find(ctx context.Context, t *engine.Thread, name string) (*engine.Checkpoint, error) {
	cp, err := findIn(ctx, t, name)
	if err != nil && name == "" {
		return nil, fmt.Errorf("thread %q: %w", t.Ref().Thread, err)
	} else if err != nil {
		return nil, fmt.Errorf("checkpoint %q of thread %q: %w", name, t.Ref().Thread, err)
	}
	return cp, nil
}

func findIn(ctx context.Context, t *engine.Thread, name string) (*engine.Checkpoint, error) {
	base, back, err := splitName(name)
	if err != nil {
		return nil, err
	}
	cp, err := findBase(ctx, t, base)
	if err != nil || back == 0 {
		return cp, err
	}
	n := -1
	for older, err := range t.History(ctx, engine.HistoryOptions{From: cp.ID, Limit: back + 1}) {
		if err != nil {
			return nil, err
		}
		cp, n = older, n+1
	}
	if n != back {
		return nil, fmt.Errorf("%w: the checkpoint has %s", engine.ErrNotFound, count(max(n, 0), "ancestor"))
	}
	return cp, nil
}

// checkBranch refuses names for new branches that the command line reads as something else.
func checkBranch(name string) error {
	if name == "" || name == "head" || strings.HasPrefix(name, "@") || strings.Contains(name, "~") {
		return usagef("%q cannot be a branch: head, @ before a seq and ~ before a count of steps name checkpoints", name)
	}
	return nil
}

// splitName splits "head~3" into "head" and 3.
func splitName(name string) (base string, back int, err error) {
	base, count, ok := strings.Cut(name, "~")
	if !ok {
		return name, 0, nil
	}
	if count == "" {
		return base, 1, nil
	}
	if back, err = strconv.Atoi(count); err != nil || back < 0 || back > 1<<31-2 {
		return "", 0, usagef("what follows ~ is no count of steps")
	}
	return base, back, nil
}

func findBase(ctx context.Context, t *engine.Thread, base string) (*engine.Checkpoint, error) {
	header := engine.LoadOptions{HeadersOnly: true}
	if base == "" || base == "head" {
		return t.Load(ctx, engine.Latest, header)
	}
	if seq, ok := strings.CutPrefix(base, "@"); ok {
		n, err := strconv.ParseUint(seq, 10, 31)
		if err != nil || n == 0 {
			return nil, usagef("what follows @ is no seq")
		}
		return t.Load(ctx, engine.AtSeq(n), header)
	}
	for _, w := range []engine.Which{engine.HeadOf(base), engine.At(base)} {
		if cp, err := t.Load(ctx, w, header); !errors.Is(err, engine.ErrNotFound) {
			return cp, err
		}
	}
	var found []*engine.Checkpoint
	if len(base) >= leastPrefix {
		for cp, err := range t.History(ctx, engine.HistoryOptions{}) {
			if err != nil {
				return nil, err
			}
			if strings.HasPrefix(cp.ID, base) {
				found = append(found, cp)
			}
		}
	}
	switch len(found) {
	case 0:
		return nil, engine.ErrNotFound
	case 1:
		return found[0], nil
	}
	return nil, usagef("%d ids begin with it, @%d and @%d among them", len(found), found[0].Seq, found[1].Seq)
}

// parseLabels reads k=v pairs.
func parseLabels(pairs []string) (map[string]string, error) {
	if len(pairs) == 0 {
		return nil, nil
	}
	labels := map[string]string{}
	for _, p := range pairs {
		k, v, ok := strings.Cut(p, "=")
		if !ok || k == "" {
			return nil, usagef("label %q: want KEY=VALUE", p)
		}
		labels[k] = v
	}
	return labels, nil
}

// parseAge reads a duration that may also be in days and weeks.
func parseAge(s string) (time.Duration, error) {
	for unit, length := range map[string]time.Duration{"d": 24 * time.Hour, "w": 7 * 24 * time.Hour} {
		if number, ok := strings.CutSuffix(s, unit); ok {
			if n, err := strconv.ParseFloat(number, 64); err == nil && n >= 0 && n < 36500 {
				return time.Duration(n * float64(length)), nil
			}
		}
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, usagef("%q is not a duration such as 90m, 24h, 30d or 2w", s)
	}
	return d, nil
}

// parseTime reads a moment: an age before now, a date, or a time of RFC 3339.
func parseTime(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, s, time.Local); err == nil {
			return t, nil
		}
	}
	age, err := parseAge(s)
	if err != nil {
		return time.Time{}, usagef("%q is neither an age such as 24h or 30d nor a time such as 2026-01-31 or 2026-01-31T12:00:00Z", s)
	}
	return now.Add(-age), nil
}
