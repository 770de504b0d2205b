// Package telemetry is for operators of a server: metrics for Prometheus, traces for OpenTelemetry,
// logs, and the pages of the admin socket. It is the only package that knows the libraries for
// them.
//
// Its output never reveals whose data a request was about. Labels and attributes come from short
// fixed lists, and any other value becomes "unknown".
package telemetry
