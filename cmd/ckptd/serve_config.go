package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/pflag"

	"github.com/ckptd/ckptd/internal/access"
	"github.com/ckptd/ckptd/internal/pluginset"
	"github.com/ckptd/ckptd/internal/server"
)

// serveOptions are the settings of the daemon from flags, environment and configuration file.
type serveOptions struct {
	config      string
	listen      []string
	socket      string
	socketMode  string
	insecure    bool
	cert        string
	certKey     string
	clientCA    string
	tokensFile  string
	auditLog    string
	adminSocket string
	metrics     string
	logLevel    string
	logFormat   string
	otlp        string
	traceRatio  float64
	drain       time.Duration
	untilUnused time.Duration
	compress    bool // also answers to callers on this machine

	maxMessage, inFlightBytes string
	limits                    server.Limits

	pluginIsolation, pluginMemory string
	plugins                       pluginset.Options // but for where they are

	access access.Options
}

func (o *serveOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.config, "config", "", "configuration `file` (TOML) with these flags and access rules")
	f.StringArrayVar(&o.listen, "listen", []string{"127.0.0.1:7420"}, "TCP `address` to listen on (repeatable; none to disable)")
	f.StringVar(&o.socket, "socket", "", "Unix socket `path` to listen on (none to disable; default: DATA.sock)")
	f.StringVar(&o.socketMode, "socket-mode", "0600", "octal file `mode` of the socket: who can connect")
	f.BoolVar(&o.insecure, "insecure", false, "allow non-local addresses without TLS")
	f.StringVar(&o.cert, "cert", "", "TLS certificate chain `file` (PEM)")
	f.StringVar(&o.certKey, "cert-key", "", "private key `file` of the TLS certificate (PEM)")
	f.StringVar(&o.clientCA, "client-ca", "", "CA certificate `file` to verify client certificates with (PEM)")
	f.StringVar(&o.tokensFile, "tokens", "", "sealed token `file` (default: DATA.tokens)")
	f.StringVar(&o.auditLog, "audit-log", "", "audit log `file` for denials, exports and administration (none to disable; default: DATA.audit.jsonl)")
	f.StringVar(&o.adminSocket, "admin-socket", "", "Unix socket `path` for metrics and profiles, accessible to its owner only (none to disable; default: DATA.admin.sock)")
	f.StringVar(&o.metrics, "metrics", "", "also serve metrics on this TCP `address`")
	f.StringVar(&o.logLevel, "log-level", "info", "log `level`: debug, info, warn or error")
	f.StringVar(&o.logFormat, "log-format", "json", "log `format`: json or text")
	f.StringVar(&o.otlp, "otlp", "", "`URL` of an OpenTelemetry collector to send traces to (OTLP over HTTP)")
	f.Float64Var(&o.traceRatio, "trace-ratio", 1, "fraction of the requests to trace that have no trace of their own (0 to 1)")
	f.DurationVar(&o.drain, "drain", 30*time.Second, "how long to wait for in-flight requests at shutdown")
	f.DurationVar(&o.untilUnused, "until-unused", 0, "stop once no connection has been open for this long (0: never)")
	f.BoolVar(&o.compress, "compress-local", false, "also compress answers on Unix sockets and loopback addresses, for callers that accept it")

	f.StringVar(&o.maxMessage, "max-message", "64MiB", "maximum request message `size`")
	f.StringVar(&o.inFlightBytes, "in-flight-bytes", "512MiB", "maximum total `size` of in-flight requests")
	f.IntVar(&o.limits.InFlight, "in-flight", 1024, "maximum in-flight requests")
	f.IntVar(&o.limits.InFlightPerTenant, "in-flight-per-tenant", 0, "maximum in-flight requests per tenant (0: same as --in-flight)")
	f.IntVar(&o.limits.Streams, "watches", 4096, "maximum watches")
	f.IntVar(&o.limits.StreamsPerConnection, "streams-per-connection", 256, "maximum HTTP/2 streams per connection")
	f.IntVar(&o.limits.Connections, "connections", 16384, "maximum connections")
	f.Float64Var(&o.limits.Rate, "rate", 0, "maximum requests per second per caller (0: unlimited)")
	f.IntVar(&o.limits.Burst, "burst", 0, "maximum burst of requests within --rate (0: one second's worth)")
	f.DurationVar(&o.limits.RequestTimeout, "request-timeout", 30*time.Second, "time limit for a request, except streams")
	f.DurationVar(&o.limits.StallTimeout, "stall-timeout", 30*time.Second, "time limit for a caller that neither sends nor reads")
	f.DurationVar(&o.limits.ReadTimeout, "read-timeout", 2*time.Minute, "time limit for receiving one request message")
	f.DurationVar(&o.limits.HeaderTimeout, "header-timeout", 10*time.Second, "time limit for receiving request headers")
	f.DurationVar(&o.limits.IdleTimeout, "idle-timeout", 3*time.Minute, "time limit for an idle connection")

	f.StringVar(&o.pluginIsolation, "plugin-isolation", "process", "plugin `isolation`: process (run plugins in worker processes) or none")
	f.StringVar(&o.pluginMemory, "plugin-memory", "1GiB", "memory limit of each process that runs plugins (`size`)")
	f.IntVar(&o.plugins.Calls, "plugin-calls", 0, "maximum parallel plugin calls, and worker processes (0: the number of processors, up to 8)")
}

// configure completes the flags with the environment and the configuration file, and checks the
// result.
func (a *app) configure(f *pflag.FlagSet, o *serveOptions) error {
	if err := environment(f); err != nil {
		return err
	}
	o.access.OwnerIsAdmin = true // the user running the daemon can read its keys anyway
	if o.config != "" {
		if err := readConfig(o.config, f, &o.access); err != nil {
			return err
		}
	}
	// Derive the paths next to the data directory again: the file may have named another directory.
	for name, value := range map[string]*string{"key-file": &a.keyFile, "keystore": &a.keysDir} {
		if flag := f.Lookup(name); !flag.Changed {
			*value = flag.DefValue
		}
	}
	if err := a.prepare(); err != nil {
		return err
	}
	return o.complete(a.base)
}

// complete derives the defaults that depend on where the store is.
func (o *serveOptions) complete(base string) error {
	for _, p := range []struct {
		path   *string
		suffix string
	}{{&o.socket, ".sock"}, {&o.tokensFile, ".tokens"}, {&o.auditLog, ".audit.jsonl"}, {&o.adminSocket, ".admin.sock"}} {
		switch *p.path {
		case "":
			*p.path = base + p.suffix
		case "none":
			*p.path = ""
		}
	}
	if o.tokensFile == "" {
		return usagef("--tokens cannot be none: the tokens need a file")
	}
	if (o.cert == "") != (o.certKey == "") {
		return usagef("--cert and --cert-key must be given together")
	}
	if o.clientCA != "" && o.cert == "" {
		return usagef("--client-ca requires --cert: client certificates need TLS")
	}
	o.listen = slices.DeleteFunc(o.listen, func(l string) bool { return l == "none" || l == "" })
	if o.traceRatio < 0 || o.traceRatio > 1 {
		return usagef("--trace-ratio %v is not between 0 and 1", o.traceRatio)
	}
	if o.untilUnused < 0 {
		return usagef("--until-unused %v is negative", o.untilUnused)
	}
	for _, s := range []struct {
		name, value string
		set         func(int64)
	}{{"max-message", o.maxMessage, func(n int64) { o.limits.MaxMessage = int(n) }},
		{"in-flight-bytes", o.inFlightBytes, func(n int64) { o.limits.InFlightBytes = n }},
		{"plugin-memory", o.pluginMemory, func(n int64) { o.plugins.Memory = n }}} {
		n, err := humanize.ParseBytes(s.value)
		if err != nil || n == 0 || n > 1<<40 {
			return usagef("--%s %q is not a size such as 64MiB", s.name, s.value)
		}
		s.set(int64(n))
	}
	switch o.pluginIsolation {
	case "process", "none":
		o.plugins.Workers = o.pluginIsolation == "process"
	default:
		return usagef("--plugin-isolation %q: want process or none", o.pluginIsolation)
	}
	if o.plugins.Calls < 0 {
		return usagef("--plugin-calls %d is negative", o.plugins.Calls)
	}
	if err := o.limits.Validate(); err != nil {
		return usageError{err}
	}
	return nil
}

// environment sets the flags that the command line leaves out and the environment names.
func environment(f *pflag.FlagSet) error {
	var errs []error
	f.VisitAll(func(flag *pflag.Flag) {
		if value := os.Getenv(envName(flag.Name)); value != "" && !flag.Changed {
			if err := f.Set(flag.Name, value); err != nil {
				errs = append(errs, usagef("%s: %w", envName(flag.Name), plainNumber(err)))
			}
		}
	})
	return errors.Join(errs...)
}

// readConfig sets the flags that neither the command line nor the environment names, and fills the
// tables.
func readConfig(path string, f *pflag.FlagSet, tables *access.Options) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading the configuration: %w", err)
	}
	var all map[string]any
	if err := toml.Unmarshal(text, &all); err != nil {
		return usagef("%s: %s", path, tomlError(err))
	}
	for key, value := range all {
		flag := f.Lookup(key)
		switch {
		case isTable(key): // below
		case flag == nil || key == "config" || key == "help":
			return usagef("%s: unknown key %q", path, key)
		case !flag.Changed:
			if err := setFlag(f, key, value); err != nil {
				return usagef("%s: %s: %w", path, key, err)
			}
		}
	}
	err = toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields().Decode(tables)
	if e, ok := errors.AsType[*toml.StrictMissingError](err); ok {
		e.Errors = slices.DeleteFunc(e.Errors, func(e toml.DecodeError) bool { return !isTable(e.Key()[0]) }) // the flags
		if len(e.Errors) == 0 {
			err = nil
		}
	}
	if err != nil {
		return usagef("%s: %s", path, tomlError(err))
	}
	if peers, ok := all["peer"].([]any); ok {
		for _, p := range peers {
			if table, ok := p.(map[string]any); ok && table["uid"] == nil { // it would be 0, which is root
				return usagef("%s: a [[peer]] has no uid", path)
			}
		}
	}
	return nil
}

// tables are the keys of the configuration file that are no flags.
func isTable(key string) bool {
	return slices.Contains([]string{"jwt", "certificate", "peer", "owner-is-admin"}, key)
}

func setFlag(f *pflag.FlagSet, name string, value any) error {
	switch v := value.(type) {
	case map[string]any:
		return errors.New("it is a table: want a value")
	case []any:
		var texts []string
		for _, item := range v {
			texts = append(texts, fmt.Sprint(item))
		}
		list, ok := f.Lookup(name).Value.(pflag.SliceValue)
		if !ok {
			return errors.New("it takes one value, not a list")
		}
		return list.Replace(texts)
	}
	return plainNumber(f.Set(name, fmt.Sprint(value)))
}

// tomlError describes the fault of a configuration, and its position, in one line.
func tomlError(err error) string {
	if e, ok := errors.AsType[*toml.StrictMissingError](err); ok && len(e.Errors) > 0 {
		return fmt.Sprintf("unknown key %q", strings.Join(e.Errors[0].Key(), "."))
	}
	if e, ok := errors.AsType[*toml.DecodeError](err); ok {
		row, column := e.Position()
		return fmt.Sprintf("line %d, column %d: %s", row, column, strings.TrimPrefix(e.Error(), "toml: "))
	}
	return strings.TrimPrefix(err.Error(), "toml: ")
}

// flagsGiven returns the flags of the command line with their values.
func flagsGiven(f *pflag.FlagSet) map[string][]string {
	given := map[string][]string{}
	f.Visit(func(flag *pflag.Flag) {
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			given[flag.Name] = list.GetSlice()
		} else {
			given[flag.Name] = []string{flag.Value.String()}
		}
	})
	return given
}

// setValues gives a flag the values that flagsGiven returned.
func setValues(f *pflag.FlagSet, name string, values []string) error {
	for _, v := range values {
		if err := f.Set(name, v); err != nil {
			return err
		}
	}
	return nil
}

// isReloaded reports whether a running daemon reads a flag again.
func isReloaded(flag string) bool {
	switch flag {
	case "config", "in-flight", "in-flight-bytes", "in-flight-per-tenant", "watches", "connections", "rate", "burst", "request-timeout",
		"stall-timeout", "read-timeout", "json", "help":
		return true
	}
	return false
}

// fixedFlags are the values of the flags that only a restart changes.
type fixedFlags map[string]string

func fixedOf(f *pflag.FlagSet) fixedFlags {
	fixed := fixedFlags{}
	f.VisitAll(func(flag *pflag.Flag) {
		if !isReloaded(flag.Name) {
			fixed[flag.Name] = flag.Value.String()
		}
	})
	return fixed
}

// changed returns the names of the flags that have another value now, in order.
func (fixed fixedFlags) changed(f *pflag.FlagSet) (names []string) {
	f.VisitAll(func(flag *pflag.Flag) {
		if was, ok := fixed[flag.Name]; ok && was != flag.Value.String() {
			names = append(names, flag.Name)
		}
	})
	return names
}
