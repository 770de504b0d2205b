package backend

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

func put(key string) Mut            { return Mut{Key: []byte(key), Version: "v"} }
func cond(key, version string) Cond { return Cond{Key: []byte(key), Version: version} }

func puts(n int) []Mut {
	muts := make([]Mut, n)
	for i := range muts {
		muts[i] = put(fmt.Sprintf("key-%03d", i))
	}
	rand.New(rand.NewPCG(1, 2)).Shuffle(n, func(i, j int) { muts[i], muts[j] = muts[j], muts[i] })
	return muts
}

func TestBatchValidate(t *testing.T) {
	long := strings.Repeat("k", MaxKey)
	full := puts(MaxBatchKeys)
	onFull := make([]Cond, len(full))
	for i := range full {
		onFull[len(full)-1-i] = Cond{Key: full[i].Key}
	}
	value := make([]byte, MaxBatchBytes-2) // with its key and version a full batch
	for _, tt := range []struct {
		name string
		b    Batch
		want error
	}{
		{"nothing", Batch{}, nil},
		{"one write", Batch{Muts: []Mut{put("a")}}, nil},
		{"write of an empty value", Batch{Muts: []Mut{{Key: []byte("a"), Version: "v", Value: []byte{}}}}, nil},
		{"delete", Batch{Muts: []Mut{{Key: []byte("a"), Delete: true}}}, nil},
		{"absent on a written key", Batch{Muts: puts(3), Conds: []Cond{cond("key-001", "")}}, nil},
		{"match on another key", Batch{Muts: puts(3), Conds: []Cond{cond("other", "v")}}, nil},
		{"match alone", Batch{Conds: []Cond{cond("other", "v")}}, nil},
		{"longest key and version", Batch{Muts: []Mut{{Key: []byte(long), Version: long[:MaxVersion]}}}, nil},
		{"most keys", Batch{Muts: full}, nil},
		{"most keys, each with a condition", Batch{Muts: full, Conds: onFull}, nil},
		{"most bytes", Batch{Muts: []Mut{{Key: []byte("a"), Version: "v", Value: value}}}, nil},

		{"empty key", Batch{Muts: []Mut{put("")}}, ErrInvalid},
		{"empty version", Batch{Muts: []Mut{{Key: []byte("a")}}}, ErrInvalid},
		{"key written twice", Batch{Muts: append(puts(20), put("key-007"))}, ErrInvalid},
		{"key written and deleted", Batch{Muts: []Mut{put("a"), {Key: []byte("a"), Delete: true}}}, ErrInvalid},
		{"key conditioned twice", Batch{Conds: []Cond{cond("a", "1"), cond("b", "1"), cond("a", "1")}}, ErrInvalid},
		{"condition on an empty key", Batch{Conds: []Cond{cond("", "v")}}, ErrInvalid},
		{"absent on a key not written", Batch{Muts: puts(3), Conds: []Cond{cond("key-0010", "")}}, ErrInvalid},
		{"absent alone", Batch{Conds: []Cond{cond("a", "")}}, ErrInvalid},

		{"key too long", Batch{Muts: []Mut{put(long + "k")}}, ErrTooLarge},
		{"condition key too long", Batch{Conds: []Cond{cond(long+"k", "v")}}, ErrTooLarge},
		{"version too long", Batch{Muts: []Mut{{Key: []byte("a"), Version: long[:MaxVersion+1]}}}, ErrTooLarge},
		{"condition version too long", Batch{Conds: []Cond{cond("a", long[:MaxVersion+1])}}, ErrTooLarge},
		{"too many writes", Batch{Muts: puts(MaxBatchKeys + 1)}, ErrTooLarge},
		{"too many keys together", Batch{Muts: full, Conds: []Cond{cond("other", "v")}}, ErrTooLarge},
		{"too many bytes", Batch{Muts: []Mut{{Key: []byte("aa"), Version: "v", Value: value}}}, ErrTooLarge},
		{"too many bytes with conditions", Batch{
			Muts:  []Mut{{Key: []byte("a"), Version: "v", Value: value}},
			Conds: []Cond{cond("a", "")},
		}, ErrTooLarge},
	} {
		if err := tt.b.Validate(); !errors.Is(err, tt.want) || (tt.want == nil) != (err == nil) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
}

func TestValidateReads(t *testing.T) {
	if err := ValidateKeys([]byte("a"), nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("empty key: %v", err)
	}
	if err := ValidateKeys(make([]byte, MaxKey+1)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("long key: %v", err)
	}
	if err := ValidateKeys([]byte("a"), make([]byte, MaxKey)); err != nil {
		t.Errorf("good keys: %v", err)
	}
	for _, r := range []Range{{Limit: -1}, {Bytes: -1}} {
		if err := r.Validate(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", r, err)
		}
	}
	if err := (Range{Start: []byte("b"), End: []byte("a")}).Validate(); err != nil {
		t.Errorf("empty range: %v", err)
	}
}

func TestNoSpaceIsUnavailable(t *testing.T) {
	if !errors.Is(ErrNoSpace, ErrUnavailable) {
		t.Error("ErrNoSpace does not wrap ErrUnavailable")
	}
}

func TestValidateDoesNotAllocate(t *testing.T) {
	for _, n := range []int{1, 2, MaxBatchKeys} {
		b := Batch{Muts: puts(n), Conds: []Cond{cond("key-000", "")}}
		if got := testing.AllocsPerRun(100, func() {
			if err := b.Validate(); err != nil {
				t.Fatal(err)
			}
		}); got != 0 {
			t.Errorf("%d keys: %v allocations", n, got)
		}
	}
}

func BenchmarkValidate(b *testing.B) {
	for _, n := range []int{1, 2, MaxBatchKeys} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			batch := Batch{Muts: puts(n), Conds: []Cond{cond("key-000", "")}}
			b.ReportAllocs()
			for b.Loop() {
				if err := batch.Validate(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
