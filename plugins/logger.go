package plugins

import "bytes"

// LogLine is a line that a plugin logged. It can contain parts of the payload, so it is meant for
// someone who runs a plugin by hand. A daemon does not log it unless its operator asks for that.
type LogLine struct {
	Level int32 // 0 debug, 1 info, 2 warning, 3 error
	Text  string
}

const (
	logInfo  = 1
	logError = 3
)

// logger keeps the first lines, each cut to a maximum length.
type logger struct {
	lines, size int
	kept        []LogLine
	dropped     int
	partial     [2][]byte // unfinished lines of standard output and standard error
}

func (l *logger) line(level int32, text []byte) {
	if len(l.kept) >= l.lines {
		l.dropped++
		return
	}
	text = bytes.TrimRight(text[:min(len(text), l.size)], "\r\n")
	l.kept = append(l.kept, LogLine{Level: min(max(level, 0), logError), Text: printable(string(text), l.size)})
}

// write takes bytes written to standard output (0) or standard error (1).
func (l *logger) write(stream int, b []byte) {
	level := int32(logInfo + stream*(logError-logInfo))
	for len(b) > 0 {
		line, rest, ended := bytes.Cut(b, []byte{'\n'})
		p := &l.partial[stream]
		*p = append(*p, line[:min(len(line), l.size-len(*p))]...)
		if ended {
			l.line(level, *p)
			*p = (*p)[:0]
		}
		b = rest
	}
}

// all returns the lines, including unfinished ones.
func (l *logger) all() []LogLine {
	for stream, p := range l.partial {
		if len(p) > 0 {
			l.line(int32(logInfo+stream*(logError-logInfo)), p)
		}
	}
	return l.kept
}
