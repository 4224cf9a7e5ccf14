mod faulty;
mod memory;
mod sqlite;
