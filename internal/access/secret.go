package access

import (
	"crypto/rand"
	"hash/crc32"
	"math/big"
	"strings"
)

// The secret of a token is TokenPrefix, 32 random bytes as 43 digits of base 62, and the CRC-32 of
// all that as 6 digits more (docs/format.md §19). The prefix and the check let scanners for leaked
// secrets know one when they see it.
const (
	TokenPrefix = "ckptd_"

	secretSize  = 32
	secretChars = 43
	checkChars  = 6
	tokenChars  = len(TokenPrefix) + secretChars + checkChars

	digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" // in base 62
)

// newSecret makes the secret of a token.
func newSecret() string {
	random := make([]byte, secretSize)
	rand.Read(random)
	return formatSecret(random)
}

func formatSecret(random []byte) string {
	s := TokenPrefix + base62(new(big.Int).SetBytes(random), secretChars)
	return s + checkOf(s)
}

// WellFormed reports whether a text may be the secret of a token: one that is mistyped or cut off
// is not.
func WellFormed(secret string) bool {
	if len(secret) != tokenChars || !strings.HasPrefix(secret, TokenPrefix) {
		return false
	}
	body := secret[:tokenChars-checkChars]
	return strings.Trim(body[len(TokenPrefix):], digits) == "" && secret[len(body):] == checkOf(body)
}

func checkOf(s string) string {
	return base62(new(big.Int).SetUint64(uint64(crc32.ChecksumIEEE([]byte(s)))), checkChars)
}

// base62 writes n with the given number of digits, which must be enough, most significant first.
func base62(n *big.Int, width int) string {
	out := make([]byte, width)
	base, digit := big.NewInt(int64(len(digits))), new(big.Int)
	for i := width - 1; i >= 0; i-- {
		n.DivMod(n, base, digit)
		out[i] = digits[digit.Int64()]
	}
	return string(out)
}
