package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// State is a JSON file that one process reads once and then replaces. A file that cannot be read
// now (EIO, EMFILE) is not broken: it is not replaced before it was read. One that needs a newer
// version is never replaced. The caller's lock protects a State.
type State[T any] struct {
	Path string
	Format
	done bool
}

// Read decodes the file. The result is the zero value if there is no file, or with an error that
// wraps the cause. After an error of reading, it can be called again; after an error of decoding,
// the file counts as read, so that the next Write replaces it.
func (s *State[T]) Read() (value T, err error) {
	data, err := os.ReadFile(s.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.done = true
		return value, nil
	case err != nil:
		return value, err
	}
	s.done = true
	var read T
	if _, err := s.Decode(data, &read); err != nil {
		return value, fmt.Errorf("decode %s: %w", s.Path, err)
	}
	return read, nil
}

// Unread reports whether the file has to be read before a Write.
func (s *State[T]) Unread() bool { return !s.done }

// Write replaces the file, and keeps its keys that T does not have. It fails if the file is unread, or
// needs a newer version.
func (s *State[T]) Write(value T) error {
	if s.Unread() {
		return fmt.Errorf("%s could not be read, so it is not replaced; that is retried", s.Path)
	}
	unknown, err := s.unknown()
	if err != nil {
		return fmt.Errorf("%s is not replaced: %w", s.Path, err)
	}
	data, err := s.Encode(value, unknown)
	if err != nil {
		return err
	}
	return WriteFile(s.Path, data)
}

// unknown returns the keys of the file that T does not have. A broken file has none.
func (s *State[T]) unknown() (Unknown, error) {
	data, err := os.ReadFile(s.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var there T
	unknown, err := s.Decode(data, &there)
	if newer := (*NewerError)(nil); errors.As(err, &newer) {
		return nil, newer
	}
	return unknown, nil //nolint:nilerr // it is replaced
}
