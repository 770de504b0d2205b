// Package telemetry tells operators how a server is doing: metrics for Prometheus, traces for OpenTelemetry, logs, and the
// pages of the admin socket. It is the only package that knows the libraries for them.
//
// Nothing that it exports says whose data a request was about. Labels and attributes are taken from short fixed lists, and
// what is not on them is "unknown".
package telemetry
