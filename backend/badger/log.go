package badger

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
)

// logger hands Badger's messages on, and notes errors that Badger only logs: of flushes, of compactions, of the MANIFEST.
type logger struct {
	to      *slog.Logger
	trouble *atomic.Bool
}

func (l logger) Errorf(format string, args ...any) {
	l.trouble.Store(true)
	l.log(slog.LevelError, format, args)
}

func (l logger) Warningf(format string, args ...any) {
	if strings.Contains(format, "FAILED") || strings.Contains(format, "doCompact") {
		l.trouble.Store(true)
	}
	l.log(slog.LevelWarn, format, args)
}

// What Badger finds worth telling is detail to everybody else.
func (l logger) Infof(format string, args ...any) { l.log(slog.LevelDebug, format, args) }
func (l logger) Debugf(string, ...any)            {}

func (l logger) log(level slog.Level, format string, args []any) {
	if l.to == nil || !l.to.Enabled(context.Background(), level) {
		return
	}
	if msg := strings.TrimSpace(fmt.Sprintf(format, args...)); msg != "" {
		l.to.Log(context.Background(), level, msg, "component", "badger")
	}
}
