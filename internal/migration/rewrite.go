package migration

import (
	"context"
	"errors"
)

// Whole histories. TODO(engine): wire when Thread.MigrateHistory is there.

var errRewrite = errors.New("histories cannot be rewritten yet")

func (r *run) lookForHistories(context.Context, Spec, func(intent) error) error { return errRewrite }
func (r *run) rewrite(context.Context, intent) ([]outcome, error)               { return nil, errRewrite }
func (r *run) rewritten(context.Context, intent) ([]outcome, error)             { return nil, errRewrite }
func (r *run) restore(context.Context, outcome) (string, error)                 { return "", errRewrite }

func (j *Jobs) dropHistories(context.Context, *journal, *history) error { return errRewrite }
