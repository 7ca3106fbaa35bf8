BEGIN TRANSACTION;
CREATE TABLE agent_messages (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	session_id VARCHAR NOT NULL, 
	message_data TEXT NOT NULL, 
	created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP NOT NULL, 
	FOREIGN KEY(session_id) REFERENCES agent_sessions (session_id) ON DELETE CASCADE
);
INSERT INTO "agent_messages" VALUES(1,'hike','{"role":"user","content":"Which hut is next?"}','2026-11-30 09:19:49');
INSERT INTO "agent_messages" VALUES(2,'hike','{"role":"assistant","content":"The \u00d8deg\u00e5rd hut."}','2026-11-30 09:19:49');
CREATE TABLE agent_sessions (
	session_id VARCHAR NOT NULL, 
	created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP NOT NULL, 
	updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP NOT NULL, 
	PRIMARY KEY (session_id)
);
INSERT INTO "agent_sessions" VALUES('hike','2026-11-30 09:19:49','2026-11-30 09:19:49');
CREATE INDEX idx_agent_messages_session_time ON agent_messages (session_id, created_at);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('agent_messages',2);
COMMIT;
