package engine

import (
	"fmt"
	"time"

	"github.com/ckptd/ckptd/codec"
)

// Everything written has a time, and records can hold times from 1970 to 10889. A clock outside
// that range would store wrong times, so writes fail then. Reads work at any time.

// time is the time to write, in Unix milliseconds.
func (s *Store) time() (int64, error) {
	now := s.now()
	ms := now.UnixMilli()
	if year := now.Year(); codec.CheckTime(ms) != nil || year < 1969 || year > 10890 {
		return 0, fmt.Errorf("%w: the clock says %s, but only times from 1970 to 10889 can be stored: set the clock", ErrUnavailable,
			now.UTC().Format(time.DateTime))
	}
	return ms, nil
}

// hour is the time to write, in hours since 1970.
func (s *Store) hour() (uint64, error) {
	ms, err := s.time()
	return uint64(ms / time.Hour.Milliseconds()), err
}

// expiry is the time ttl from now, at most the last time that can be stored.
func expiry(now, ttl int64) int64 { return min(now+ttl, codec.MaxTime) }

// clock is the time that hooks are told.
func (s *Store) clock() time.Time { return time.UnixMilli(s.now().UnixMilli()).UTC() }
