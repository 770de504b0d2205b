package server

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestUnused waits for a server without connections, in the time of a bubble.
func TestUnused(t *testing.T) {
	const after = 30 * time.Second
	tests := []struct {
		name string
		use  func(s *Server) // takes until the server is unused
	}{
		{"from the start", func(*Server) {}},
		{"after a connection", func(s *Server) {
			s.unused.opened()
			time.Sleep(10 * after)
			s.unused.closed()
		}},
		{"after the last of several", func(s *Server) {
			time.Sleep(after - 1)
			s.unused.opened()
			time.Sleep(after - 1)
			s.unused.opened()
			s.unused.closed()
			time.Sleep(after + 1)
			s.unused.closed()
		}},
		{"after one at the last moment", func(s *Server) {
			for range 100 {
				time.Sleep(after - 1)
				s.unused.opened()
				s.unused.closed()
			}
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &Server{}
				done := s.Unused(after)
				test.use(s)
				time.Sleep(after - 1)
				wantUnused(t, done, false)
				time.Sleep(time.Nanosecond)
				wantUnused(t, done, true)
				s.unused.opened() // a connection that came too late
				s.unused.closed()
				time.Sleep(2 * after)
			})
		})
	}
	t.Run("with a request whose connection has ended", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &Server{}
			done := s.Unused(after)
			s.gate.inFlight.Add(1)
			time.Sleep(10*after - 1)
			s.gate.inFlight.Add(-1)
			wantUnused(t, done, false)
			time.Sleep(after)
			wantUnused(t, done, true)
		})
	})
	t.Run("with a connection from before", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &Server{}
			s.unused.opened()
			done := s.Unused(after)
			time.Sleep(2 * after)
			wantUnused(t, done, false)
			s.unused.closed()
			time.Sleep(after)
			wantUnused(t, done, true)
		})
	})
}

func wantUnused(t *testing.T, done <-chan struct{}, want bool) {
	t.Helper()
	synctest.Wait()
	select {
	case <-done:
		if !want {
			t.Fatal("it counts as unused too early")
		}
	default:
		if want {
			t.Fatal("it does not count as unused")
		}
	}
}
