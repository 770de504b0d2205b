package badger

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
)

// logger hands Badger's messages on, and notes the errors that Badger only logs: of flushes, of
// compactions, of the MANIFEST.
type logger struct {
	to      *slog.Logger
	flushes *flushes
}

func (l logger) Errorf(format string, args ...any) {
	l.flushes.trouble.Store(true)
	if strings.HasPrefix(format, "error flushing memtable") {
		l.flushes.failedOnce(fmt.Sprintf(format, args...))
	}
	l.log(slog.LevelError, format, args)
}

func (l logger) Warningf(format string, args ...any) {
	if strings.Contains(format, "FAILED") || strings.Contains(format, "doCompact") {
		l.flushes.trouble.Store(true)
	}
	if strings.Contains(format, "Compact FAILED") {
		if short, has := strings.CutSuffix(format, ": %+v"); has && len(args) > 2 { // the plan, which has keys
			format, args = short, args[:2]
		}
		l.flushes.compactionFailed(fmt.Sprintf(format, args...))
	}
	l.log(slog.LevelWarn, format, args)
}

// Badger's information is detail to everybody else.
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
