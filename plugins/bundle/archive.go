package bundle

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
)

// maxArchive is the maximum size of an archive: a header and padding for each file, plus the end
// marker.
const maxArchive = MaxSize + maxFiles*1024 + 1024

// Archive returns the bundle as a single file. The same files always give the same bytes.
func (b *Bundle) Archive() []byte { return pack(b.files) }

// pack writes files, which are valid and sorted by path, as a tar archive in which only paths and
// contents vary.
func pack(files []File) []byte {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		// Writing to a buffer cannot fail, and every valid path fits USTAR.
		w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.Path, Size: int64(len(f.Data)), Mode: 0o644,
			Format: tar.FormatUSTAR})
		w.Write(f.Data)
	}
	w.Close()
	return out.Bytes()
}

// LoadArchive parses the output of Archive. Any other encoding of the same files is an error, so
// that a plugin has exactly one byte sequence. The Bundle does not keep the archive.
func LoadArchive(archive []byte) (*Bundle, error) {
	if len(archive) > maxArchive {
		return nil, invalidf("the archive has more than %d bytes", maxArchive)
	}
	files, err := unpack(archive)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(pack(files), archive) {
		return nil, invalidf("the archive was not created with ckptd plugin build: create it again from the plugin's directory")
	}
	return Load(files)
}

func unpack(archive []byte) ([]File, error) {
	var files []File
	r := tar.NewReader(bytes.NewReader(archive))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, invalidf("it is not a plugin archive, or it is damaged: create it with ckptd plugin build")
		}
		switch {
		case h.Typeflag != tar.TypeReg || h.Format&tar.FormatUSTAR == 0:
			return nil, invalidf("the archive has other entries than plain files: create it with ckptd plugin build")
		case len(files) == maxFiles:
			return nil, invalidf("the archive has more than %d files", maxFiles)
		case !validPath(h.Name):
			return nil, badPath(h.Name)
		case len(files) > 0 && h.Name <= files[len(files)-1].Path:
			return nil, invalidf("the files of the archive are not in order: create it with ckptd plugin build")
		}
		data, err := io.ReadAll(io.LimitReader(r, int64(len(archive))+1))
		if err != nil || int64(len(data)) != h.Size {
			return nil, invalidf("the archive is damaged in %s: get it again", h.Name)
		}
		files = append(files, File{h.Name, data})
	}
}
