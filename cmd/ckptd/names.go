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

// leastPrefix is the minimum length of an id prefix.
const leastPrefix = 8

// find returns the header of the checkpoint that the command line names; "" is the head.
func find(ctx context.Context, t thread, name string) (*engine.Checkpoint, error) {
	cp, err := findIn(ctx, t, name)
	if err != nil && name == "" {
		return nil, fmt.Errorf("thread %q: %w", t.Ref().Thread, err)
	} else if err != nil {
		return nil, fmt.Errorf("checkpoint %q of thread %q: %w", name, t.Ref().Thread, err)
	}
	return cp, nil
}

func findIn(ctx context.Context, t thread, name string) (*engine.Checkpoint, error) {
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
		return usagef("%q is not a valid branch name: head, @SEQ and ~N refer to checkpoints", name)
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
		return "", 0, usagef("the text after ~ is not a number")
	}
	return base, back, nil
}

func findBase(ctx context.Context, t thread, base string) (*engine.Checkpoint, error) {
	header := engine.LoadOptions{HeadersOnly: true}
	if base == "" || base == "head" {
		return t.Load(ctx, engine.Latest, header)
	}
	if seq, ok := strings.CutPrefix(base, "@"); ok {
		n, err := strconv.ParseUint(seq, 10, 31)
		if err != nil || n == 0 {
			return nil, usagef("the text after @ is not a seq")
		}
		return t.Load(ctx, engine.AtSeq(n), header)
	}
	for _, w := range []engine.Which{engine.HeadOf(base), engine.At(base)} {
		if cp, err := t.Load(ctx, w, header); !errors.Is(err, engine.ErrNotFound) {
			return cp, err
		}
	}
	found, err := withPrefix(ctx, t, base)
	if err != nil {
		return nil, err
	}
	switch len(found) {
	case 0:
		if n, err := strconv.ParseUint(base, 10, 31); err == nil && n > 0 {
			if _, err := t.Load(ctx, engine.AtSeq(n), header); err == nil {
				return nil, fmt.Errorf("%w: not a branch or an id, did you mean @%d", engine.ErrNotFound, n)
			}
		}
		if len(base) < leastPrefix {
			return nil, fmt.Errorf("%w: not a branch or an id, and the beginning of an id needs at least %d characters", engine.ErrNotFound, leastPrefix)
		}
		return nil, engine.ErrNotFound
	case 1:
		return found[0], nil
	}
	return nil, usagef("%d ids begin with it, such as those of @%d and @%d: give more characters", len(found), found[0].Seq, found[1].Seq)
}

// withPrefix returns the checkpoints whose ids begin with prefix, if that is long enough to name
// one.
func withPrefix(ctx context.Context, t thread, prefix string) (found []*engine.Checkpoint, err error) {
	if len(prefix) < leastPrefix {
		return nil, nil
	}
	// A UUIDv7 has its creation time, which saves a server from sending the rest of the history.
	filters := []engine.Filter{{}}
	if since, until, ok := timeOf(prefix); ok {
		filters = []engine.Filter{{Since: since.Add(-clockSkew), Until: until.Add(clockSkew)}, {}}
	}
	for _, f := range filters {
		for cp, err := range t.History(ctx, engine.HistoryOptions{Filter: f}) {
			if err != nil {
				return nil, err
			}
			if strings.HasPrefix(cp.ID, prefix) {
				found = append(found, cp)
			}
		}
		if found != nil {
			break
		}
	}
	return found, nil
}

// clockSkew is the maximum difference between the clocks of id creators and of the store.
const clockSkew = 10 * time.Minute

// timeOf returns when the UUIDs of version 7 were made that begin with prefix.
func timeOf(prefix string) (since, until time.Time, ok bool) {
	const digits = 12 // of 48 bits
	hex := strings.ReplaceAll(prefix, "-", "")
	if len(hex) > digits {
		hex = hex[:digits]
	}
	ms, err := strconv.ParseInt(hex, 16, 64)
	if err != nil {
		return since, until, false
	}
	missing := 4 * (digits - len(hex))
	return time.UnixMilli(ms << missing), time.UnixMilli((ms + 1) << missing), true
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
