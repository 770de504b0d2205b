package redact

import "bytes"

// checks are the checksums and plausibility checks that rules name. Their input is only the digits,
// or the whole word.
var checks = map[string]func(value []byte) bool{
	"card":      card,
	"us-ssn":    usSSN,
	"us-ein":    func(v []byte) bool { return varied(v) },
	"uk-nhs":    ukNHS,
	"ca-sin":    func(v []byte) bool { return v[0] != '8' && luhn(v) && varied(v) },
	"de-tax-id": deTaxID,
	"fr-nir":    frNIR,
	"es-nif":    esNIF,
	"it-fiscal": itFiscal,
	"nl-bsn":    nlBSN,
	"br-cpf":    brCPF,
	"br-cnpj":   brCNPJ,
	"verhoeff":  func(v []byte) bool { return v[0] > '1' && verhoeff(v) },
	"ch-ahv":    func(v []byte) bool { return bytes.HasPrefix(v, []byte("756")) && ean(v) },
	"pl-pesel":  plPESEL,
	"se-pn":     sePN,
	"no-fnr":    noFNR,
	"dk-cpr":    func(v []byte) bool { return dayMonth(v[0:4]) },
	"fi-hetu":   fiHETU,
	"be-nn":     beNN,
	"cn-id":     cnID,
	"kr-rrn":    krRRN,
	"za-id":     func(v []byte) bool { return monthDay(v[2:6]) && luhn(v) },
	"tr-tckn":   trTCKN,
	"au-tfn":    func(v []byte) bool { return weighted(v, 1, 4, 3, 7, 5, 8, 6, 9, 10)%11 == 0 && varied(v) },
	"au-medicare": func(v []byte) bool {
		return v[0] >= '2' && v[0] <= '6' && weighted(v[:8], 1, 3, 7, 9, 1, 3, 7, 9)%10 == int(v[8]-'0')
	},
	"au-abn":     auABN,
	"us-routing": func(v []byte) bool { return weighted(v, 3, 7, 1, 3, 7, 1, 3, 7, 1)%10 == 0 && varied(v) },
	"varied":     varied,
	"luhn":       luhn,
	"sg-nric":    sgNRIC,
	"jp-number":  jpNumber,
	"mixed":      mixed,
}

// varied reports whether digits are neither a single repeated digit nor consecutive.
func varied(v []byte) bool {
	same, up := true, true
	for i := 1; i < len(v); i++ {
		same = same && v[i] == v[0]
		up = up && (v[i] == v[i-1]+1 || v[i] == '0' && v[i-1] == '9')
	}
	return !same && !up
}

// mixed reports whether a value has both a digit and a letter, so it isn't a word.
func mixed(v []byte) bool {
	return bytes.ContainsFunc(v, func(r rune) bool { return r < 0x80 && isDigit(byte(r)) }) && bytes.ContainsFunc(v, func(r rune) bool { return r < 0x80 && isLetter(byte(r)) })
}

// weighted returns the weighted sum of the digits.
func weighted(v []byte, weights ...int) int {
	sum := 0
	for i, w := range weights {
		sum += int(v[i]-'0') * w
	}
	return sum
}

func luhn(v []byte) bool {
	sum, double := 0, false
	for i := len(v) - 1; i >= 0; i-- {
		d := int(v[i] - '0')
		if double {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum, double = sum+d, !double
	}
	return sum%10 == 0
}

// issuers are the prefixes of payment cards and the lengths of their numbers (ISO/IEC 7812 and the
// networks' own tables).
var issuers = []struct{ from, to, digits, least, most int }{
	{4, 4, 1, 13, 19}, {51, 55, 2, 16, 16}, {2221, 2720, 4, 16, 16}, {34, 34, 2, 15, 15}, {37, 37, 2, 15, 15},
	{300, 305, 3, 14, 19}, {3095, 3095, 4, 14, 19}, {36, 36, 2, 14, 19}, {38, 39, 2, 14, 19}, {6011, 6011, 4, 16, 19}, {644, 649, 3, 16, 19},
	{65, 65, 2, 16, 19}, {622126, 622925, 6, 16, 19}, {62, 62, 2, 16, 19}, {35, 35, 2, 16, 19}, {2131, 2131, 4, 15, 15},
	{1800, 1800, 4, 15, 15}, {50, 50, 2, 12, 19}, {56, 58, 2, 12, 19}, {60, 61, 2, 12, 19}, {63, 63, 2, 12, 19}, {67, 67, 2, 12, 19},
	{2200, 2204, 4, 16, 19}, {604, 604, 4, 12, 19}, {9792, 9792, 4, 16, 16}, {8600, 8600, 4, 16, 16}, {81, 81, 2, 16, 19},
}

// card reports whether digits are a payment card number.
func card(v []byte) bool {
	if !luhn(v) || !varied(v) {
		return false
	}
	for _, is := range issuers {
		if len(v) < is.least || len(v) > is.most {
			continue
		}
		if head := decimal(v[:is.digits]); head >= is.from && head <= is.to {
			return true
		}
	}
	return false
}

// usSSN accepts social security numbers and the ITINs that begin with 9.
func usSSN(v []byte) bool {
	area, grp, serial := decimal(v[:3]), decimal(v[3:5]), decimal(v[5:])
	if area == 0 || area == 666 || grp == 0 || serial == 0 || !varied(v) && string(v) != "123456789" {
		return false
	}
	if area >= 900 {
		return grp >= 50 && grp != 89 && grp != 93
	}
	return true
}

func ukNHS(v []byte) bool {
	check := 11 - weighted(v, 10, 9, 8, 7, 6, 5, 4, 3, 2)%11
	return check%11 == int(v[9]-'0') && check != 10 && varied(v)
}

func deTaxID(v []byte) bool {
	if v[0] == '0' {
		return false
	}
	product := 10
	for _, d := range v[:10] {
		sum := (int(d-'0') + product) % 10
		if sum == 0 {
			sum = 10
		}
		product = sum * 2 % 11
	}
	return (11-product)%10 == int(v[10]-'0')
}

// frNIR accepts the thirteen digits and the two of the key. Corsican numbers contain letters and
// are not recognized.
func frNIR(v []byte) bool {
	if len(v) != 15 || v[0] != '1' && v[0] != '2' && v[0] != '3' && v[0] != '4' && v[0] != '7' && v[0] != '8' {
		return false
	}
	month := decimal(v[3:5])
	if month == 0 || month > 12 && month < 20 {
		return false
	}
	return 97-decimal(v[:13])%97 == decimal(v[13:])
}

// esNIF accepts DNI and NIE with their final letter.
func esNIF(v []byte) bool {
	digits := bytes.Clone(v[:8])
	if i := bytes.IndexByte([]byte("XYZ"), v[0]&^lowerBit(v[0])); i >= 0 {
		digits[0] = '0' + byte(i)
	}
	return "TRWAGMYFPDXBNJZSQVHLCKE"[decimal(digits)%23] == v[8]&^lowerBit(v[8])
}

func itFiscal(v []byte) bool {
	odd := []int{1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23}
	sum := 0
	for i, b := range v[:15] {
		value := int(b - '0')
		if isLetter(b) {
			value = int(b|0x20) - 'a'
		}
		if i%2 == 0 {
			value = odd[value]
		}
		sum += value
	}
	return byte('a'+sum%26) == v[15]|0x20
}

func nlBSN(v []byte) bool {
	return (weighted(v, 9, 8, 7, 6, 5, 4, 3, 2)-int(v[8]-'0'))%11 == 0 && varied(v)
}

func brCPF(v []byte) bool {
	return varied(v) && mod11(weighted(v, 10, 9, 8, 7, 6, 5, 4, 3, 2)) == int(v[9]-'0') &&
		mod11(weighted(v, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2)) == int(v[10]-'0')
}

func brCNPJ(v []byte) bool {
	return varied(v) && mod11(weighted(v, 5, 4, 3, 2, 9, 8, 7, 6, 5, 4, 3, 2)) == int(v[12]-'0') &&
		mod11(weighted(v, 6, 5, 4, 3, 2, 9, 8, 7, 6, 5, 4, 3, 2)) == int(v[13]-'0')
}

// mod11 computes the check digit of Brazilian numbers.
func mod11(sum int) int {
	if rest := sum % 11; rest >= 2 {
		return 11 - rest
	}
	return 0
}

func verhoeff(v []byte) bool {
	permute := [10]byte{1, 5, 7, 6, 2, 8, 3, 0, 9, 4}
	c := byte(0)
	for i := range v {
		d := v[len(v)-1-i] - '0'
		for range i % 8 {
			d = permute[d]
		}
		c = dihedral(c, d)
	}
	return c == 0
}

// dihedral multiplies in the symmetry group of a pentagon.
func dihedral(x, y byte) byte {
	switch {
	case x < 5 && y < 5:
		return (x + y) % 5
	case x < 5:
		return 5 + (x+y-5)%5
	case y < 5:
		return 5 + (x-5+5-y)%5
	}
	return (x - y + 5) % 5
}

// ean reports whether the last digit is the check digit of an EAN-13.
func ean(v []byte) bool {
	return weighted(v, 1, 3, 1, 3, 1, 3, 1, 3, 1, 3, 1, 3, 1)%10 == 0
}

func plPESEL(v []byte) bool {
	return monthDay([]byte{'0' + (v[2]-'0')%2, v[3], v[4], v[5]}) && weighted(v, 1, 3, 7, 9, 1, 3, 7, 9, 1, 3, 1)%10 == 0
}

// sePN accepts ten digits, or twelve with the century.
func sePN(v []byte) bool {
	v = v[len(v)-10:]
	day := decimal(v[4:6])
	month := decimal(v[2:4])
	return month >= 1 && month <= 12 && (day >= 1 && day <= 31 || day >= 61 && day <= 91) && luhn(v)
}

func noFNR(v []byte) bool {
	return weighted(v, 3, 7, 6, 1, 8, 9, 4, 5, 2, 1)%11 == 0 && weighted(v, 5, 4, 3, 2, 7, 6, 5, 4, 3, 2, 1)%11 == 0 && varied(v)
}

// fiHETU accepts DDMMYY, a century sign, three digits and the check character.
func fiHETU(v []byte) bool {
	n := decimal(v[:6])*1000 + decimal(v[7:10])
	return dayMonth(v[:4]) && "0123456789ABCDEFHJKLMNPRSTUVWXY"[n%31] == v[10]&^lowerBit(v[10])
}

func beNN(v []byte) bool {
	key, n := decimal(v[9:11]), decimal(v[:9])
	return varied(v) && decimal(v[2:4]) <= 12 && (97-n%97 == key || 97-(2000000000+n)%97 == key)
}

func cnID(v []byte) bool {
	return monthDay(v[10:14]) && "10X98765432"[weighted(v[:17], 7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)%11] == v[17]&^lowerBit(v[17])
}

func krRRN(v []byte) bool {
	return monthDay(v[2:6]) && v[6] >= '1' && v[6] <= '8'
}

func trTCKN(v []byte) bool {
	odd, even := weighted(v, 1, 0, 1, 0, 1, 0, 1, 0, 1), weighted(v, 0, 1, 0, 1, 0, 1, 0, 1)
	return v[0] != '0' && ((odd*7-even)%10+10)%10 == int(v[9]-'0') && (odd+even+int(v[9]-'0'))%10 == int(v[10]-'0')
}

func auABN(v []byte) bool {
	return (weighted(v, 10, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19)-10)%89 == 0 && varied(v)
}

func sgNRIC(v []byte) bool {
	sum := weighted(v[1:8], 2, 7, 6, 5, 4, 3, 2)
	letters := "JZIHGFEDCBA"
	switch v[0] &^ lowerBit(v[0]) {
	case 'T':
		sum += 4
	case 'F':
		letters = "XWUTRQPNMLK"
	case 'G':
		sum, letters = sum+4, "XWUTRQPNMLK"
	case 'M':
		sum, letters = sum+3, "XWUTRQPNJLK"
	}
	if v[0]|0x20 == 'm' {
		return letters[10-sum%11] == v[8]&^lowerBit(v[8])
	}
	return letters[sum%11] == v[8]&^lowerBit(v[8])
}

func jpNumber(v []byte) bool {
	rest := weighted(v, 6, 5, 4, 3, 2, 7, 6, 5, 4, 3, 2) % 11
	check := 0
	if rest > 1 {
		check = 11 - rest
	}
	return check == int(v[11]-'0') && varied(v)
}

func dayMonth(v []byte) bool {
	return decimal(v[:2]) >= 1 && decimal(v[:2]) <= 31 && decimal(v[2:4]) >= 1 && decimal(v[2:4]) <= 12
}
func monthDay(v []byte) bool { return dayMonth([]byte{v[2], v[3], v[0], v[1]}) }

const maxIBAN = 34

// ibanSizes are the IBAN lengths of the countries in the registry of ISO 13616.
const ibanSizes = "AD24AE23AL28AT20AZ28BA20BE16BG22BH22BI27BR29BY28CH21CR22CY28CZ24DE22DJ27DK18DO28EE20EG29ES24FI18FK18FO18FR27" +
	"GB22GE22GI23GL18GR27GT28HN28HR21HU28IE22IL23IQ23IS26IT27JO30KW30KZ20LB28LC32LI21LT20LU20LV21LY25MC27MD24ME22MK19MN20" +
	"MR27MT31MU30NI28NL18NO15OM23PK24PL28PS29PT25QA29RO24RS22RU33SA24SC31SD18SE24SI19SK24SM27SO23ST25SV28TL23TN24TR26UA29VA22" +
	"VG24XK20YE30"

// ibanSize returns the IBAN length of a country, or 0 if it has no IBANs.
func ibanSize(a, b byte) int {
	a, b = a&^lowerBit(a), b&^lowerBit(b)
	for i := 0; i < len(ibanSizes); i += 4 {
		if ibanSizes[i] == a && ibanSizes[i+1] == b {
			return decimal([]byte(ibanSizes[i+2 : i+4]))
		}
	}
	return 0
}

// mod97 checks an IBAN in capitals (ISO 7064).
func mod97(v []byte) bool {
	rest := 0
	for i := range v {
		switch b := v[(i+4)%len(v)]; {
		case isDigit(b):
			rest = (rest*10 + int(b-'0')) % 97
		default:
			rest = (rest*100 + int(b-'A') + 10) % 97
		}
	}
	return rest == 1
}
