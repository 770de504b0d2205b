package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/ckptd/ckptd/hook"
)

const (
	// maxTextBlob is the size of the largest text that can run through the hooks.
	maxTextBlob = 32 << 20
	// sniffLen is how many bytes of a blob decide whether it is text.
	sniffLen = 64 << 10
	// textCopies is how many copies of a text are in memory while hooks run: the input, and their
	// output.
	textCopies = 3
)

// hookBlob returns the content to store for r: a text as the hooks made it, with memory for it
// reserved, anything else untouched.
func (u *user) hookBlob(ctx context.Context, room *reservation, r io.Reader) (io.Reader, error) {
	chain, err := u.s.hookChain(hook.PreSave, u.tenant, "")
	if chain == nil || err != nil {
		return r, err
	}
	head, err := io.ReadAll(io.LimitReader(r, sniffLen))
	if err != nil {
		return nil, err
	}
	if len(head) == 0 || !isText(head, len(head) < sniffLen) {
		return io.MultiReader(bytes.NewReader(head), r), nil
	}
	var all bytes.Buffer
	all.Write(head)
	for n := int64(blobStep); n == blobStep && all.Len() <= maxTextBlob; {
		if err = room.reserve(ctx, textCopies*blobStep); err == nil {
			n, err = io.CopyN(&all, r, blobStep)
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
	}
	if all.Len() > maxTextBlob {
		return nil, rejected(&hook.Error{Kind: hook.ErrLimit, Plugin: "hooks", Stage: hook.PreSave, Item: "blob",
			Reason: fmt.Sprintf("a text of more than %d bytes is too large for hooks: split it, or compress it", maxTextBlob)})
	}
	it := hook.Item{Kind: hook.Blob, Type: "text", Data: all.Bytes()}
	if head[0] == '{' || head[0] == '[' {
		if json.Valid(it.Data) {
			it.Type = "json"
		}
	}
	return u.runBlobHooks(ctx, chain, it)
}

func (u *user) runBlobHooks(ctx context.Context, chain hook.Chain, it hook.Item) (io.Reader, error) {
	c := &hook.Call{Items: []hook.Item{it}, Place: hook.Place{Time: u.s.clock()}}
	mac := newBlobPut(u, 0).mac
	mac.Write(it.Data)
	if err := u.runHooks(ctx, chain, c, mac.Sum(nil)); err != nil {
		return nil, err
	}
	switch {
	case len(c.Items) != 1:
		return nil, unstorable(hook.PreSave, errors.New("not one blob for one"))
	case c.Items[0].Dropped:
		return nil, rejected(&hook.Error{Kind: hook.ErrRejected, Plugin: "hooks", Stage: hook.PreSave, Item: "blob", Reason: "hooks dropped it"})
	}
	return bytes.NewReader(c.Items[0].Data), nil
}

// isText reports whether b is UTF-8 without zero bytes. Unless it is whole, its last rune may be
// cut.
func isText(b []byte, whole bool) bool {
	if bytes.IndexByte(b, 0) >= 0 {
		return false
	}
	for cut := 0; !whole && cut < utf8.UTFMax && cut < len(b); cut++ {
		if last := b[len(b)-1-cut]; utf8.RuneStart(last) {
			if !utf8.FullRune(b[len(b)-1-cut:]) {
				b = b[:len(b)-1-cut]
			}
			break
		}
	}
	return utf8.Valid(b)
}
