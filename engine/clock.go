package engine

import (
	"fmt"
	"time"

	"github.com/ckptd/ckptd/codec"
)

// What is written says when, and a record holds times from 1970 to 10889. A clock that is beside that would get what it
// dates wrong or lost, so nothing is written by it. What only reads, and compares with the time, takes any.

// time is the time for what is written, in Unix milliseconds.
func (s *Store) time() (int64, error) {
	now := s.now()
	ms := now.UnixMilli()
	if year := now.Year(); codec.CheckTime(ms) != nil || year < 1969 || year > 10890 {
		return 0, fmt.Errorf("%w: the clock says %s, but only times from 1970 to 10889 can be stored: set the clock", ErrUnavailable,
			now.UTC().Format(time.DateTime))
	}
	return ms, nil
}

// hour is the time for what is written, in hours since 1970.
func (s *Store) hour() (uint64, error) {
	ms, err := s.time()
	return uint64(ms / time.Hour.Milliseconds()), err
}

// expiry is when what lives for ttl from now on expires. There is no saving after the last time that can be stored.
func expiry(now, ttl int64) int64 { return min(now+ttl, codec.MaxTime) }

// clock is the time that hooks are told.
func (s *Store) clock() time.Time { return time.UnixMilli(s.now().UnixMilli()).UTC() }
